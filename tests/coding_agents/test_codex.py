"""Codex from npm, with the documented configuration. It needs ``npm ci`` in ``js``."""

import json

import pytest

from mochi_server.chat.prompt import HIDDEN_IMAGES
from mochi_stub import ToolCall
from tests.coding_agents.conftest import CodingStub
from tests.coding_agents.programs import MISSING, MODEL, SEEING_MODEL, Computer, is_installed
from tests.support.images import PNG, base64_image
from tests.support.stub import chats

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not is_installed("codex"), reason=MISSING)]


def test_answer_is_printed(computer: Computer, stub: CodingStub) -> None:
    stub.replies = ["Paris."]
    assert computer.codex("What is the capital of France?") == "Paris."


def test_tool_reads_a_file(computer: Computer, stub: CodingStub) -> None:
    (computer.project / "notes.txt").write_text("The word is periwinkle.\n")
    stub.replies = [ToolCall("exec_command", {"cmd": "cat notes.txt"}), "It is periwinkle."]
    assert computer.codex("Which word is in notes.txt?") == "It is periwinkle."
    result = stub.prompt()[-1]
    assert (result["role"], result["tool_name"]) == ("tool", "exec_command")
    assert "The word is periwinkle." in result["content"]


def test_second_turn_continues_the_conversation(computer: Computer, stub: CodingStub) -> None:
    stub.replies = ["Paris.", "Rome."]
    computer.codex("What is the capital of France?")
    assert computer.codex("resume", "--last", "And of Italy?") == "Rome."
    contents = [message["content"] for message in stub.prompt()[-3:]]
    assert contents == ["What is the capital of France?", "Paris.", "And of Italy?"]


def test_image_of_a_tool_does_not_end_the_conversation(
    computer: Computer, stub: CodingStub
) -> None:
    path = computer.project / "dot.png"
    path.write_bytes(PNG)
    stub.replies = [
        ToolCall("view_image", {"path": str(path)}),
        "I cannot see it.",
        "It is a file.",
    ]
    assert computer.codex("What is in dot.png?") == "I cannot see it."
    assert stub.prompt()[-1]["content"] == HIDDEN_IMAGES
    assert computer.codex("resume", "--last", "What is it then?") == "It is a file."


def test_image_of_the_user_reaches_the_model(computer: Computer, stub: CodingStub) -> None:
    path = computer.project / "dot.png"
    path.write_bytes(PNG)
    stub.replies = ["A dot.", "Black."]
    command = ("-m", SEEING_MODEL, "-i", str(path), "--", "What is this?")
    assert computer.codex(*command) == "A dot."
    images = [image for message in stub.prompt() for image in message.get("images", [])]
    assert images == [base64_image(PNG)]
    assert computer.codex("-m", SEEING_MODEL, "resume", "--last", "Which colour?") == "Black."
    assert any(message.get("images") for message in stub.prompt())


def test_custom_tool_writes_a_file(computer: Computer, stub: CodingStub) -> None:
    patch = "*** Begin Patch\n*** Add File: notes.txt\n+periwinkle\n*** End Patch\n"
    stub.replies = [ToolCall("apply_patch", {"input": patch}), "It is written.", "Yes."]
    catalog = computer.home / "models.json"
    models = json.loads(computer.run("codex debug models"))["models"]
    own = next(model for model in models if model["slug"] == "gpt-5.5")
    catalog.write_text(json.dumps({"models": [{**own, "slug": MODEL}]}))
    setting = f'model_catalog_json="{catalog}"'
    assert computer.codex("-c", setting, "Write the word.") == "It is written."
    assert (computer.project / "notes.txt").read_text() == "periwinkle\n"
    tools = {tool["function"]["name"]: tool["function"] for tool in chats(stub)[-1].body["tools"]}
    assert list(tools["apply_patch"]["parameters"]["properties"]) == ["input"]
    result = stub.prompt()[-1]
    assert (result["role"], result["tool_name"]) == ("tool", "apply_patch")
    assert computer.codex("-c", setting, "resume", "--last", "Is it there?") == "Yes."
    assert [message["role"] for message in stub.prompt()][-4:] == [
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
