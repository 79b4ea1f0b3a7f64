"""Files in the requests of OpenAI, Anthropic, the AI SDK and AG-UI."""

from base64 import b64encode
from typing import Any

import httpx
import pytest

from mochi_server.protocols.sent_files import HIDDEN_DOCUMENT, HIDDEN_IMAGE
from mochi_stub import StubServer
from tests.api.test_files import in_prompt, sent_contents
from tests.support.api import Api
from tests.support.cases import cases
from tests.support.images import PNG
from tests.support.pdf import pdf

DOCUMENT = pdf("Minutes of May")
EXPECTED = f"{in_prompt('Minutes of May', 'may.pdf')}\n\nSum up."


def encoded(data: bytes) -> str:
    return b64encode(data).decode()


def data_url(data: bytes) -> str:
    return f"data:application/pdf;base64,{encoded(data)}"


def chat_completion(data: bytes) -> tuple[str, dict[str, Any]]:
    file = {"filename": "may.pdf", "file_data": data_url(data)}
    content = [{"type": "file", "file": file}, {"type": "text", "text": "Sum up."}]
    return "/v1/chat/completions", {
        "model": "mochi",
        "messages": [{"role": "user", "content": content}],
    }


def response(data: bytes) -> tuple[str, dict[str, Any]]:
    content = [
        {"type": "input_file", "filename": "may.pdf", "file_data": data_url(data)},
        {"type": "input_text", "text": "Sum up."},
    ]
    return "/v1/responses", {"model": "mochi", "input": [{"role": "user", "content": content}]}


def anthropic(data: bytes) -> tuple[str, dict[str, Any]]:
    source = {"type": "base64", "media_type": "application/pdf", "data": encoded(data)}
    content = [
        {"type": "document", "title": "may.pdf", "source": source},
        {"type": "text", "text": "Sum up."},
    ]
    return "/v1/messages", {
        "model": "mochi",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": content}],
    }


def ai_sdk(data: bytes) -> tuple[str, dict[str, Any]]:
    parts = [
        {"type": "text", "text": "Sum up."},
        {
            "type": "file",
            "mediaType": "application/pdf",
            "filename": "may.pdf",
            "url": data_url(data),
        },
    ]
    return "/api/v1/chat/{}/ai-sdk", {"messages": [{"role": "user", "parts": parts}]}


def ag_ui(data: bytes) -> tuple[str, dict[str, Any]]:
    source = {"type": "data", "value": encoded(data), "mimeType": "application/pdf"}
    part = {"type": "document", "source": source, "metadata": {"filename": "may.pdf"}}
    return _ag_ui(part)


def ag_ui_binary(data: bytes) -> tuple[str, dict[str, Any]]:
    part = {"type": "binary", "mimeType": "application/pdf", "filename": "may.pdf"}
    return _ag_ui({**part, "data": encoded(data)})


def _ag_ui(part: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    content = [{"type": "text", "text": "Sum up."}, part]
    message = {"id": "m", "role": "user", "content": content}
    return "/api/v1/chat/{}/ag-ui", {"threadId": "t", "runId": "r", "messages": [message]}


STATELESS = [chat_completion, response, anthropic]
PROTOCOLS = [*STATELESS, ai_sdk, ag_ui, ag_ui_binary]


@pytest.fixture
def session_id(api: Api) -> str:
    return str(api.create_session("mochi")["session_id"])


def post(
    api: Api, path: str, body: dict[str, Any], session_id: str | None = None
) -> httpx.Response:
    url = str(api.http.base_url.join(path.format(session_id)))
    headers = {} if session_id is None else {"X-Mochi-Session": session_id}
    return api.http.post(url, json=body, headers=headers)


@cases("protocol", PROTOCOLS, ids=lambda protocol: protocol.__name__)
def test_file_is_stored_with_its_message(api: Api, stub: StubServer, protocol: Any) -> None:
    session_id = str(api.create_session("mochi")["session_id"])
    path, body = protocol(DOCUMENT)

    answer = post(api, path, body, session_id)

    assert answer.status_code == 200, answer.text
    assert sent_contents(stub) == [EXPECTED]
    message = api.messages(session_id)[0]
    assert message["content"] == "Sum up."
    (attachment,) = message["attachments"]
    assert (attachment["name"], attachment["media_type"]) == ("may.pdf", "application/pdf")
    stored = api.http.get(f"/sessions/{session_id}/files/{attachment['sha256']}")
    assert stored.content == DOCUMENT


@cases("protocol", STATELESS, ids=lambda protocol: protocol.__name__)
def test_file_is_read_without_a_session(api: Api, stub: StubServer, protocol: Any) -> None:
    path, body = protocol(DOCUMENT)
    answer = post(api, path, body)
    assert answer.status_code == 200, answer.text
    assert sent_contents(stub) == [EXPECTED]


@cases("protocol", PROTOCOLS, ids=lambda protocol: protocol.__name__)
def test_unreadable_file_is_refused_with_the_reason(api: Api, protocol: Any) -> None:
    session_id = str(api.create_session("mochi")["session_id"])
    for data, problem in ((PNG, "files of this kind are not supported"), (pdf(""), "no text")):
        path, body = protocol(data)
        answer = post(api, path, body, session_id)
        assert answer.status_code in (400, 422)
        assert "'may.pdf': " in answer.text
        assert problem in answer.text
    assert api.messages(session_id) == []


def test_document_of_a_tool_is_part_of_its_result(api: Api, stub: StubServer) -> None:
    path, body = anthropic(DOCUMENT)
    document = body["messages"][0]["content"][0]
    unreadable = {"type": "document", "source": {"type": "url", "url": "https://example.org"}}
    content = [{"type": "text", "text": "See."}, document, unreadable]
    body["messages"] = [
        {"role": "user", "content": "Read."},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": content}],
        },
    ]

    answer = post(api, path, body)

    assert answer.status_code == 200, answer.text
    expected = ["See.", in_prompt("Minutes of May", "may.pdf"), HIDDEN_DOCUMENT]
    assert sent_contents(stub)[-1] == "\n".join(expected)


def test_file_of_a_tool_is_part_of_its_output(api: Api, stub: StubServer) -> None:
    path, body = response(DOCUMENT)
    file = body["input"][0]["content"][0]
    unreadable = [{"type": "input_file", "file_id": "file_1"}, {**file, "file_data": "*"}]
    image = {"type": "input_image", "file_id": "file_2"}
    output = [{"type": "input_text", "text": "See."}, file, *unreadable, image]
    body["input"] = [
        {"role": "user", "content": "Read."},
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": output},
    ]

    answer = post(api, path, body)

    assert answer.status_code == 200, answer.text
    expected = ["See.", HIDDEN_IMAGE, in_prompt("Minutes of May", "may.pdf")]
    expected += [HIDDEN_DOCUMENT, HIDDEN_DOCUMENT]
    assert sent_contents(stub)[-1] == "\n".join(expected)


URL = "https://example.org/a.png"
UNREADABLE: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions": [
        {"type": "file", "file": {"file_id": "file_1"}},
        {"type": "image_url", "image_url": {"url": URL}},
    ],
    "/v1/responses": [
        {"type": "input_file", "file_url": "https://example.org/a.pdf"},
        {"type": "input_image", "image_url": URL},
        {"type": "input_image", "image_url": None, "file_id": "file_1"},
        {"type": "input_image", "file_id": "file_1"},
    ],
}
"""Files and images that the server cannot read, by route."""


@cases("protocol", [chat_completion, response], ids=lambda protocol: protocol.__name__)
def test_unreadable_content_is_refused_only_in_the_newest_message(
    api: Api, stub: StubServer, protocol: Any
) -> None:
    path, body = protocol(pdf(""))
    field = "messages" if "messages" in body else "input"
    file, text = body[field][0]["content"]
    later = [{"role": "assistant", "content": "No."}, {"role": "user", "content": "And now?"}]
    for unreadable in (file, *UNREADABLE[path]):
        message = {"role": "user", "content": [text, unreadable]}
        refused = post(api, path, body | {field: [message]})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_value")
        answer = post(api, path, body | {field: [message, *later]})
        assert answer.status_code == 200, answer.text
        note = HIDDEN_IMAGE if "image" in unreadable["type"] else HIDDEN_DOCUMENT
        assert sent_contents(stub) == [f"Sum up.\n{note}", "No.", "And now?"]
        (notice,) = answer.json()["mochi"]["notices"]
        assert notice["code"] in ("CONTENT_LEFT_OUT", "DOCUMENT_LEFT_OUT")


def test_stored_file_cannot_be_changed_by_an_edit(api: Api, session_id: str) -> None:
    path, body = ai_sdk(DOCUMENT)
    post(api, path, body, session_id)
    _, edited = ai_sdk(pdf("Other"))
    edited["messages"][0]["id"] = edited["messageId"] = "m"

    answer = post(api, path, edited, session_id)

    assert answer.status_code == 422
    assert "the images and files of a stored message cannot be changed" in answer.text
