"""Files: sent with messages, read by the model, downloaded, copied and exported."""

from base64 import b64encode
from typing import Any

import httpx
import pytest

from mochi_server.sessions.versions import MAX_VERSIONS
from mochi_stub import StubServer
from tests.support.api import Api, error_of
from tests.support.cases import cases
from tests.support.images import sha256_of
from tests.support.pdf import pdf
from tests.support.server import RunningServer
from tests.support.stub import chats

pytestmark = pytest.mark.two_servers

NOTES = "Höhe;Breite\n3;4\n".encode()


def attached(content: bytes = NOTES, name: str = "notes.csv", **fields: Any) -> dict[str, Any]:
    """Return a file as it is sent with a message."""
    data = b64encode(content).decode()
    return {"name": name, "media_type": "text/csv", "data": data, **fields}


def in_prompt(text: str, name: str = "notes.csv") -> str:
    mark = sha256_of(text.encode())[:8]
    return f'[Begin of file "{name}" {mark}]\n{text}\n[End of file "{name}" {mark}]'


@pytest.fixture
def session_id(api: Api) -> str:
    return str(api.create_session("mochi")["session_id"])


def sent_contents(stub: StubServer) -> list[str]:
    """Return the contents of the messages in the latest chat request."""
    bodies = [exchange.body for exchange in chats(stub)]
    return [message["content"] for message in bodies[-1]["messages"]]


def stored_blobs(server: RunningServer) -> set[str]:
    directory = server.settings.resolved_sessions_dir / "blobs"
    return {path.name for path in directory.iterdir()} if directory.exists() else set()


def test_model_reads_the_file_at_its_message_in_each_turn(
    api: Api, stub: StubServer, session_id: str
) -> None:
    api.send_message(session_id, "Sum up.", attachments=[attached()])
    first = sent_contents(stub)
    assert first == [f"{in_prompt(NOTES.decode())}\n\nSum up."]

    api.send_message(session_id, "And now?")

    assert sent_contents(stub)[0] == first[0]
    assert sent_contents(stub)[2] == "And now?"


def test_message_shows_a_reference_to_the_file(api: Api, session_id: str) -> None:
    api.send_message(session_id, "Sum up.", attachments=[attached()])
    message = api.messages(session_id)[0]
    assert message["content"] == "Sum up."
    assert message["attachments"] == [
        {
            "name": "notes.csv",
            "media_type": "text/csv",
            "size": len(NOTES),
            "sha256": sha256_of(NOTES),
            "text_sha256": sha256_of(NOTES),
            "characters": len(NOTES.decode()),
        }
    ]


def test_text_of_a_pdf_and_of_another_encoding_is_read(
    api: Api, stub: StubServer, session_id: str
) -> None:
    document = pdf("Minutes of May")
    files = [
        attached(document, "minutes.pdf", media_type=None),
        attached(NOTES.decode().encode("utf-16")),
    ]
    api.send_message(session_id, "Compare.", attachments=files)

    expected = [in_prompt("Minutes of May", "minutes.pdf"), in_prompt(NOTES.decode()), "Compare."]
    assert sent_contents(stub) == ["\n\n".join(expected)]
    answer = api.http.get(f"/sessions/{session_id}/files/{sha256_of(document)}")
    assert answer.content == document


def test_file_is_downloaded_with_safe_headers(api: Api, session_id: str) -> None:
    page = b"<script>alert(1)</script>"
    name = 'a"b/\u00fc.html'
    file = attached(page, name, media_type="text/html; charset=utf-8")
    api.send_message(session_id, "Explain.", attachments=[file])

    answer = api.http.get(f"/sessions/{session_id}/files/{sha256_of(page)}")

    assert answer.content == page
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    disposition = "attachment; filename*=UTF-8''a%22b%2F%C3%BC.html"
    assert answer.headers["content-disposition"] == disposition
    assert answer.headers["cache-control"].startswith("private")


def test_unknown_file_is_not_found(api: Api, session_id: str) -> None:
    api.send_message(session_id, "Read.", attachments=[attached()])
    other = api.create_session("mochi")["session_id"]
    for path in (
        f"/sessions/{session_id}/files/{'0' * 64}",
        f"/sessions/{other}/files/{sha256_of(NOTES)}",
        f"/sessions/{session_id}/blobs/{sha256_of(NOTES)}",
    ):
        assert error_of(api.http.get(path)) == (404, "BLOB_NOT_FOUND")


@cases(
    ("media_type", "data"),
    [
        ("text/csv; charset=utf-8", "Müller;1".encode("cp1252")),
        ("text/plain; charset=us-ascii", "Müller;1".encode()),
    ],
)
def test_file_may_declare_another_charset_than_its_own(
    api: Api, session_id: str, media_type: str, data: bytes
) -> None:
    file = attached(data, "list.csv", media_type=media_type)
    api.send_message(session_id, "Read.", attachments=[file])
    sent = api.messages(session_id)[-2]
    assert sent["attachments"][0]["characters"] == len("Müller;1")


BROKEN = {
    "broken base64": ({"data": "aGFsbG8!"}, "not valid base64"),
    "a link": ({"data": "https://example.org/notes.txt"}, "not valid base64"),
    "no base64 in the data URL": ({"data": "data:text/plain,hello"}, "not in base64"),
    "empty": ({"data": ""}, "the file is empty"),
    "binary": ({"data": b64encode(b"PK\3\4\0\0").decode()}, "Supported are text of any kind"),
    "damaged PDF": ({"data": b64encode(pdf("Cut")[:300]).decode()}, "the PDF is damaged"),
    "encrypted PDF": (
        {"data": b64encode(pdf("Secret", password="open")).decode()},
        "the PDF is encrypted",
    ),
    "scanned PDF": ({"data": b64encode(pdf("")).decode()}, "no text, as a scan does"),
    "slow encoding": (
        {
            "name": "notes",
            "data": b64encode(b"\xff").decode(),
            "media_type": "a/b; charset=punycode",
        },
        "not supported",
    ),
    "no media type": ({"media_type": "text/csv\r\nX-Injected: 1"}, "is no media type"),
    "control character in the name": ({"name": "a\nb"}, "no control characters"),
}


@cases("case", BROKEN)
def test_invalid_file_error_names_its_position_and_nothing_is_stored(
    api: Api, server: RunningServer, session_id: str, case: str
) -> None:
    fields, problem = BROKEN[case]
    unstored = attached(f"{case} stores nothing".encode())
    before = stored_blobs(server)

    body = {"message": "Read.", "attachments": [unstored, attached() | fields]}
    response = api.http.post(f"/chat/{session_id}", json=body)

    assert error_of(response) == (422, "VALIDATION_ERROR")
    error = response.json()["error"]
    assert problem in error["message"]
    assert error["details"]["errors"][0]["loc"] == ["body", "attachments", 1]
    assert api.messages(session_id) == []
    assert stored_blobs(server) <= before


@cases(
    "body",
    [
        {"message": "Read.", "attachments": [attached()] * 17},
        {"message": "Read.", "attachments": attached()},
        {"message": "Read.", "attachments": [attached(extra=1)]},
        {"message": "Read.", "attachments": [{"name": "a.txt"}]},
        {"message": "Read.", "attachments": [attached(name="")]},
        {"message": "Read.", "attachments": [attached(name="a" * 256)]},
        {"message": " ", "attachments": [attached()]},
        {"attachments": [attached()]},
    ],
    ids=[
        *("too many", "no list", "unknown field", "no data", "no name", "long name", "blank"),
        "without a message",
    ],
)
def test_invalid_attachments_are_refused(api: Api, session_id: str, body: dict[str, Any]) -> None:
    response = api.http.post(f"/chat/{session_id}", json=body)
    assert error_of(response) == (422, "VALIDATION_ERROR")


def test_idempotency_key_with_another_file_is_refused(api: Api, session_id: str) -> None:
    def send_message(data: bytes) -> httpx.Response:
        body = {"message": "Read.", "attachments": [attached(data)]}
        return api.http.post(f"/chat/{session_id}", json=body, headers={"Idempotency-Key": "k"})

    first = send_message(b"one")
    assert send_message(b"one").json() == first.json()
    assert error_of(send_message(b"two")) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert len(api.messages(session_id)) == 2


def test_edited_and_regenerated_message_keeps_its_file(
    api: Api, stub: StubServer, session_id: str
) -> None:
    api.send_message(session_id, "Sum up.", attachments=[attached()])
    api.send_message(session_id)
    assert sent_contents(stub) == [f"{in_prompt(NOTES.decode())}\n\nSum up."]

    api.ok(api.http.put(f"/sessions/{session_id}/messages/0", json={"content": "Count."}))
    api.send_message(session_id)
    assert sent_contents(stub) == [f"{in_prompt(NOTES.decode())}\n\nCount."]


@pytest.mark.parametrize("end", ["deleted versions", "deleted session", "too many versions"])
def test_file_of_a_version_is_kept_until_its_last_version_is_gone(
    api: Api, server: RunningServer, stub: StubServer, session_id: str, end: str
) -> None:
    text = f"Until {end}"
    document = pdf(text)
    path = f"/sessions/{session_id}"
    names = {sha256_of(document), sha256_of(text.encode())}
    api.send_message(session_id, "Hello")
    api.send_message(session_id, "Sum up.", attachments=[attached(document, "a.pdf")])

    def edit(content: str) -> str:
        """Replace all messages and return the ID of the new message."""
        changed = api.ok(api.http.put(f"{path}/messages/0", json={"content": content}))
        return str(changed["messages"][0]["message_id"])

    message_id = edit("Good morning")
    file = f"{path}/files/{sha256_of(document)}"
    assert api.http.get(file).status_code == 404  # the history does not contain it

    params = {"message_id": message_id}
    version = api.ok(api.http.get(f"{path}/versions", params=params))["versions"][0]["version_id"]
    api.ok(api.http.post(f"{path}/versions/{version}/select"))
    assert api.http.get(file).content == document
    api.send_message(session_id, "And now?")
    assert in_prompt(text, "a.pdf") in sent_contents(stub)[2]

    message_id = edit("Good evening")
    if end == "deleted versions":
        api.http.delete(f"{path}/versions", params={"message_id": message_id}).raise_for_status()
    elif end == "too many versions":
        for number in range(MAX_VERSIONS):
            edit(str(number))
    else:
        api.http.delete(path).raise_for_status()
    assert not names & stored_blobs(server)


def test_fork_keeps_files_of_deleted_origin(
    api: Api, server: RunningServer, stub: StubServer, session_id: str
) -> None:
    document = pdf("Of the deleted origin")
    api.send_message(session_id, "Sum up.", attachments=[attached(document, "a.pdf")])
    fork = api.ok(api.http.post(f"/sessions/{session_id}/fork"), 201)["session_id"]

    api.http.delete(f"/sessions/{session_id}")

    assert api.http.get(f"/sessions/{fork}/files/{sha256_of(document)}").content == document
    api.send_message(fork, "And now?")
    assert in_prompt("Of the deleted origin", "a.pdf") in sent_contents(stub)[0]
    api.http.delete(f"/sessions/{fork}")
    assert not {sha256_of(document), sha256_of(b"Of the deleted origin")} & stored_blobs(server)


def test_export_transfers_files_to_another_server(
    api: Api, session_id: str, private_api: Api, private_stub: StubServer
) -> None:
    document = pdf("Minutes of June")
    api.send_message(session_id, "Sum up.", attachments=[attached(document, "a.pdf"), attached()])
    file = api.ok(api.http.get(f"/sessions/{session_id}/export"))
    contents = (document, b"Minutes of June", NOTES)
    assert file["blobs"] == {sha256_of(each): b64encode(each).decode() for each in contents}

    imported = private_api.ok(private_api.http.post("/sessions/import", json=file), 201)
    (session,) = imported["sessions"]

    path = f"/sessions/{session['session_id']}"
    assert private_api.http.get(f"{path}/files/{sha256_of(document)}").content == document
    private_api.send_message(session["session_id"], "And now?")
    assert in_prompt("Minutes of June", "a.pdf") in sent_contents(private_stub)[0]


def test_import_refuses_invalid_files(api: Api, session_id: str) -> None:
    api.send_message(session_id, "Sum up.", attachments=[attached(b"Four")])
    file = api.ok(api.http.get(f"/sessions/{session_id}/export"))
    (attachment,) = file["messages"][0]["attachments"]
    name = attachment["sha256"]
    for blob, reference, problem in (
        (b"Four", {**attachment, "characters": 1}, "has 4 characters, not 1"),
        (b"Five", attachment, "another SHA-256"),
        (b"Four", {**attachment, "size": "big"}, "attachments"),
    ):
        file["blobs"] = {name: b64encode(blob).decode()}
        file["messages"][0]["attachments"] = [reference]
        response = api.http.post("/sessions/import", json=file)
        assert error_of(response) == (422, "VALIDATION_ERROR")
        assert problem in response.json()["error"]["message"]


def test_markdown_names_the_files(api: Api, session_id: str) -> None:
    api.send_message(session_id, "Sum up.", attachments=[attached()])
    text = api.http.get(f"/sessions/{session_id}/export", params={"format": "markdown"}).text
    assert "Sum up.\n\n*(file notes.csv)*\n\n" in text
