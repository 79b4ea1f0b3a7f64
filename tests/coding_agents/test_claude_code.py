"""Claude Code from npm, with the documented settings. It needs ``npm ci`` in ``js``."""

import json
import signal
from typing import Any

import pytest

from mochi_server.chat.prompt import HIDDEN_IMAGES
from mochi_server.protocols.sent_files import HIDDEN_DOCUMENT
from mochi_stub import Exchange, ToolCall
from mochi_stub.reply import Gate, Reply, Text
from tests.coding_agents.conftest import CodingStub
from tests.coding_agents.programs import MISSING, SEEING_MODEL, Computer, is_installed
from tests.support.images import PNG, base64_image
from tests.support.stub import chats

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not is_installed("claude"), reason=MISSING)]

_PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj\n%%EOF\n"


def roles(prompt: list[dict[str, Any]]) -> list[str]:
    return [message["role"] for message in prompt]


def test_answer_is_printed(computer: Computer, stub: CodingStub) -> None:
    stub.replies = ["Paris."]
    assert computer.claude("-p", "What is the capital of France?") == "Paris."
    assert roles(stub.prompt()) == ["system", "user", "system"]
    assert "x-anthropic-billing-header" not in stub.prompt()[0]["content"]


def test_prompt_comes_from_a_pipe(computer: Computer, stub: CodingStub) -> None:
    stub.replies = ["Paris."]
    assert computer.claude("-p", stdin="What is the capital of France?") == "Paris."
    assert "What is the capital of France?" in stub.prompt()[1]["content"]


def test_tool_reads_a_file(computer: Computer, stub: CodingStub) -> None:
    path = computer.project / "notes.txt"
    path.write_text("The word is periwinkle.\n")
    stub.replies = [ToolCall("Read", {"file_path": str(path)}), "It is periwinkle."]
    assert computer.claude("-p", "Which word is in notes.txt?") == "It is periwinkle."
    result = stub.prompt()[-1]
    assert (result["role"], result["tool_name"]) == ("tool", "Read")
    assert "The word is periwinkle." in result["content"]


def test_second_turn_continues_the_conversation(computer: Computer, stub: CodingStub) -> None:
    stub.replies = ["Paris.", "Rome."]
    computer.claude("-p", "What is the capital of France?")
    assert computer.claude("-c", "-p", "And of Italy?") == "Rome."
    assert roles(stub.prompt()) == ["system", "user", "system", "assistant", "user"]
    assert [message["content"] for message in stub.prompt()[-2:]] == ["Paris.", "And of Italy?"]


def test_conversations_share_their_cached_prefix(computer: Computer, stub: CodingStub) -> None:
    for text in ("What is the capital of France?", "How many legs does a spider have?"):
        output = computer.claude("-p", "--output-format", "json", text)
    assert stub.prompt(-1)[0] == stub.prompt(-2)[0], "the instructions are the same"
    usage = json.loads(output)["usage"]
    after_instructions = len(json.dumps(stub.prompt()[1:]))  # a token of the stub has one character
    assert 0 < usage["input_tokens"] <= after_instructions
    assert usage["cache_read_input_tokens"] > len(json.dumps(chats(stub)[-1].body["tools"]))


def test_image_of_a_tool_does_not_end_the_conversation(
    computer: Computer, stub: CodingStub
) -> None:
    path = computer.project / "dot.png"
    path.write_bytes(PNG)
    stub.replies = [ToolCall("Read", {"file_path": str(path)}), "I cannot see it.", "It is a file."]
    assert computer.claude("-p", "What is in dot.png?") == "I cannot see it."
    assert stub.prompt()[-1]["content"] == HIDDEN_IMAGES
    assert computer.claude("-c", "-p", "What is it then?") == "It is a file."


def test_document_of_a_tool_does_not_end_the_conversation(
    computer: Computer, stub: CodingStub
) -> None:
    path = computer.project / "page.pdf"
    path.write_bytes(_PDF)
    stub.replies = [
        ToolCall("Read", {"file_path": str(path)}),
        "I cannot read it.",
        "It is a file.",
    ]
    assert computer.claude("-p", "What is in page.pdf?") == "I cannot read it."
    assert stub.prompt()[-1]["content"].endswith(HIDDEN_DOCUMENT)
    assert computer.claude("-c", "-p", "What is it then?") == "It is a file."


def test_image_of_the_user_does_not_end_the_conversation(
    computer: Computer, stub: CodingStub
) -> None:
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": base64_image(PNG)},
    }
    content = [{"type": "text", "text": "What is this?"}, image]
    message = {"type": "user", "message": {"role": "user", "content": content}}
    stub.replies = ["I cannot see it.", "Yes."]
    options = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
    computer.claude("-p", *options, stdin=json.dumps(message) + "\n")
    assert "Could not process image" in stub.prompt()[1]["content"], (
        "the program removes a rejected image"
    )
    assert computer.claude("-c", "-p", "Do you see this?") == "Yes."


def test_tools_can_be_found_by_a_search(computer: Computer, stub: CodingStub) -> None:
    stub.replies = [ToolCall("ToolSearch", {"query": "select:WebFetch"}), "Found."]
    assert computer.claude("-p", "Find a tool.") == "Found."
    assert stub.prompt()[-1]["content"] == "The tool 'WebFetch' is available."
    assert "WebFetch" in [tool["function"]["name"] for tool in chats(stub)[-1].body["tools"]]


def test_model_sees_the_image_of_a_tool(computer: Computer, stub: CodingStub) -> None:
    path = computer.project / "dot.png"
    path.write_bytes(PNG)
    stub.replies = [ToolCall("Read", {"file_path": str(path)}), "A dot."]
    assert computer.claude("--model", SEEING_MODEL, "-p", "What is in dot.png?") == "A dot."
    assert any(message.get("images") == [base64_image(PNG)] for message in stub.prompt())


def test_file_is_written_and_a_command_is_run(computer: Computer, stub: CodingStub) -> None:
    path = computer.project / "notes.txt"
    write = ToolCall("Write", {"file_path": str(path), "content": "periwinkle\n"})
    run = ToolCall("Bash", {"command": "echo ran; cat notes.txt", "description": "Print a file"})
    stub.replies = [write, run, "It is written."]
    output = computer.claude("--allowedTools", "Write,Bash", "-p", "Write it.")
    assert output == "It is written."
    assert path.read_text() == "periwinkle\n"
    assert "ran\nperiwinkle" in stub.prompt()[-1]["content"]


def test_subagent_reports_to_the_conversation(computer: Computer, stub: CodingStub) -> None:
    path = computer.project / "notes.txt"
    path.write_text("The word is periwinkle.\n")
    task: dict[str, Any] = {
        "description": "Find the word",
        "prompt": "Which word is in notes.txt?",
        "subagent_type": "general-purpose",
        "run_in_background": False,
    }
    stub.replies = [
        ToolCall("Agent", task),
        ToolCall("Read", {"file_path": str(path)}),
        "It is periwinkle, says the file.",
        "It is periwinkle.",
    ]
    assert computer.claude("-p", "Let an agent find the word.") == "It is periwinkle."
    of_agent, last = stub.prompt(-2), stub.prompt(-1)
    (read,) = [message for message in of_agent if message["role"] == "tool"]
    assert "The word is periwinkle." in read["content"]
    assert task["prompt"] in of_agent[1]["content"]
    assert last[-1]["tool_name"] == "Agent"
    assert "It is periwinkle, says the file." in last[-1]["content"]


def test_stop_ends_the_request_to_the_model(computer: Computer, stub: CodingStub) -> None:
    gate = Gate()
    stub.replies = [Reply([Text(["Once ", "upon "]), gate, Text("a time.")]), "Rome."]
    program = computer.start_claude("-p", "Tell me a story.")
    stub.wait_for(lambda exchanges: any(_is_waiting(each) for each in exchanges), 120)
    program.send_signal(signal.SIGINT)
    program.wait(120)
    stub.wait_for(lambda exchanges: any(each.outcome == "cancelled" for each in exchanges), 60)
    assert chats(stub)[-1].outcome == "cancelled"
    gate.open()
    assert computer.claude("-c", "-p", "What is the capital of Italy?") == "Rome."
    contents = "".join(message["content"] for message in stub.prompt())
    assert "Tell me a story." in contents


def _is_waiting(exchange: Exchange) -> bool:
    """Return whether an answer has begun and not ended."""
    return exchange.path == "/api/chat" and exchange.outcome == "running" and exchange.chunks > 1
