"""Images: sent with messages, passed to vision models, stored once, served, and deleted when no message needs them."""

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from mochi_stub import Model, StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Reply
from tests.support.api import Api, error_of
from tests.support.cases import cases
from tests.support.images import GIF, KINDS, PNG, base64_image, numbered_image, sha256_of
from tests.support.server import RunningServer
from tests.support.stub import chats

VISION_MODEL = "echo"
"""A model of the stub with the capability `vision`; `mochi` has none."""
UNSTORED_IMAGE = numbered_image(0)
"""An image that no test leaves in the shared server."""


_NUMBERS = count(1)


def new_image() -> bytes:
    """Return an image that no other test uses, because all share one server."""
    return numbered_image(next(_NUMBERS))


def path_of(server: RunningServer, image: bytes) -> Path:
    return server.settings.resolved_sessions_dir / "blobs" / sha256_of(image)


def stored(server: RunningServer, *images: bytes) -> set[bytes]:
    """Return those of the images that the server stores."""
    return {image for image in images if path_of(server, image).exists()}


@pytest.fixture
def session_id(api: Api) -> str:
    """An empty session with a model that can see."""
    return str(api.create_session(VISION_MODEL)["session_id"])


def sent_images(stub: StubServer) -> list[Any]:
    """Return the images in the latest chat request, message by message."""
    bodies = [exchange.body for exchange in chats(stub)]
    return [message.get("images") for message in bodies[-1]["messages"]]


def warning_codes(events: list[Any]) -> list[str]:
    return [event.data["code"] for event in events if event.type == "warning"]


def session_with_images(api: Api, *images: bytes, message: str = "Look!") -> str:
    """Create a session with a message that has these images."""
    session_id = str(api.create_session(VISION_MODEL)["session_id"])
    api.send_message(session_id, message, images=[base64_image(image) for image in images])
    return session_id


@pytest.mark.one_process("checks the server's files")
def test_message_references_image_that_is_served_unchanged(api: Api, server: RunningServer) -> None:
    png, gif = new_image(), GIF + new_image()
    session_id = session_with_images(api, png, gif)

    user, _ = api.messages(session_id)
    assert user["content"] == "Look!"
    assert user["images"] == [
        {"sha256": sha256_of(png), "media_type": "image/png"},
        {"sha256": sha256_of(gif), "media_type": "image/gif"},
    ]
    assert stored(server, png, gif) == {png, gif}
    file = server.settings.resolved_sessions_dir / f"{session_id}.json"
    assert base64_image(png)[:40].encode() not in file.read_bytes()
    answer = api.http.get(f"/sessions/{session_id}/blobs/{sha256_of(gif)}")
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, gif, "image/gif")


def test_image_is_served_with_safe_headers(api: Api) -> None:
    images = {media_type: image + b"<script>alert(1)</script>" for media_type, image in KINDS.items()}
    session_id = session_with_images(api, *images.values())
    for media_type, image in images.items():
        answer = api.http.get(f"/sessions/{session_id}/blobs/{sha256_of(image)}")

        assert answer.content == image
        assert answer.headers["content-type"] == media_type
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert answer.headers["content-disposition"].startswith("inline; filename=")
        assert answer.headers["cache-control"].startswith("private")


def test_later_requests_send_images_of_history(api: Api, stub: StubServer) -> None:
    session_id = session_with_images(api, PNG, PNG)
    assert sent_images(stub) == [[base64_image(PNG), base64_image(PNG)]]

    api.stream_message(session_id, "And now?")
    assert sent_images(stub) == [[base64_image(PNG), base64_image(PNG)], None, None]

    api.stream_message(session_id, "This one!", images=[base64_image(GIF)])
    assert sent_images(stub) == [[base64_image(PNG), base64_image(PNG)], None, None, None, [base64_image(GIF)]]

    api.send_message(session_id)
    assert sent_images(stub)[-1] == [base64_image(GIF)]


def test_data_urls_and_line_breaks_are_accepted(api: Api, stub: StubServer, session_id: str) -> None:
    wrapped = "\r\n".join(base64_image(PNG)[i : i + 76] for i in range(0, len(base64_image(PNG)), 76))

    api.send_message(
        session_id, "Look!", images=[f"data:image/svg+xml;charset=utf-8;base64,{base64_image(PNG)}", wrapped]
    )

    assert sent_images(stub) == [[base64_image(PNG), base64_image(PNG)]]
    assert api.messages(session_id)[0]["images"][0]["media_type"] == "image/png"


def test_image_for_model_without_vision_is_refused(api: Api, server: RunningServer) -> None:
    session_id = api.create_session("mochi")["session_id"]
    for path in (f"/chat/{session_id}", f"/chat/{session_id}/stream"):
        response = api.http.post(path, json={"message": "Look!", "images": [base64_image(UNSTORED_IMAGE)]})
        assert error_of(response) == (422, "VALIDATION_ERROR")
        assert "'mochi' cannot see" in response.json()["error"]["message"]
    assert api.messages(session_id) == []
    assert not stored(server, UNSTORED_IMAGE)


BROKEN = {
    "broken base64": "iVBORw0KGgo!",
    "cut short": base64_image(PNG)[:-3],
    "no base64": "übung",
    "empty": "",
    "an empty data URL": "data:image/png;base64,",
    "text": base64_image(b"BMW, as a text says"),
    "svg": base64_image(b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"),
    "html": base64_image(b"<!doctype html><script>alert(1)</script>"),
    "a link": "https://example.org/cat.png",
}


@cases("case", BROKEN)
def test_invalid_image_error_names_its_position(api: Api, server: RunningServer, session_id: str, case: str) -> None:
    response = api.http.post(
        f"/chat/{session_id}", json={"message": "Look!", "images": [base64_image(UNSTORED_IMAGE), BROKEN[case]]}
    )

    assert error_of(response) == (422, "VALIDATION_ERROR")
    error = response.json()["error"]
    assert error["message"].startswith("images.1: not an image")
    assert error["details"]["errors"][0]["loc"] == ["body", "images", 1]
    assert api.messages(session_id) == []
    assert not stored(server, UNSTORED_IMAGE)


@cases(
    "body",
    [
        {"message": "Look!", "images": [base64_image(PNG)] * 17},
        {"message": "Look!", "images": base64_image(PNG)},
        {"message": "Look!", "images": [1]},
        {"message": " ", "images": [base64_image(PNG)]},
        {"images": [base64_image(PNG)]},
    ],
    ids=["too many", "no list", "no text", "blank", "without a message"],
)
def test_too_many_images_or_missing_text_are_refused(api: Api, session_id: str, body: dict[str, Any]) -> None:
    response = api.http.post(f"/chat/{session_id}", json=body)
    assert error_of(response) == (422, "VALIDATION_ERROR")


def test_empty_image_list_is_not_stored(api: Api) -> None:
    nothing: list[list[str] | None] = [[], None]
    for images in nothing:
        session_id = api.create_session("mochi")["session_id"]
        api.send_message(session_id, "Hello!", images=images)
        assert "images" not in api.messages(session_id)[0]


def test_model_without_vision_answers_with_warning(api: Api, stub: StubServer) -> None:
    session_id = session_with_images(api, PNG)
    api.ok(api.http.patch(f"/sessions/{session_id}", json={"model": "mochi"}))

    events = api.stream_message(session_id, "What was it?")

    assert warning_codes(events) == ["IMAGES_NOT_SUPPORTED"]
    assert events[-2].type == "message_complete"
    assert sent_images(stub) == [None, None, None]
    api.ok(api.http.patch(f"/sessions/{session_id}", json={"model": VISION_MODEL}))
    assert warning_codes(api.stream_message(session_id, "And now?")) == []
    assert sent_images(stub)[0] == [base64_image(PNG)]


@pytest.mark.one_process("checks the server's files")
def test_missing_image_file_causes_warning(api: Api, server: RunningServer, stub: StubServer) -> None:
    missing, there = new_image(), new_image()
    session_id = session_with_images(api, missing, there)
    path_of(server, missing).unlink()

    assert warning_codes(api.stream_message(session_id, "And now?")) == ["IMAGE_NOT_FOUND"]

    assert sent_images(stub)[0] == [base64_image(there)]
    response = api.http.get(f"/sessions/{session_id}/blobs/{sha256_of(missing)}")
    assert error_of(response) == (404, "BLOB_NOT_FOUND")


@pytest.mark.one_process("checks the server's files")
def test_image_is_served_only_through_its_session(api: Api) -> None:
    foreign, own = new_image(), new_image()
    session_with_images(api, foreign)
    session_id = session_with_images(api, own)

    for name in (sha256_of(foreign), sha256_of(foreign)[:-1], sha256_of(own).upper(), "none"):
        assert api.http.get(f"/sessions/{session_id}/blobs/{name}").status_code == 404
    response = api.http.get(f"/sessions/{session_id}/blobs/{sha256_of(foreign)}")
    assert error_of(response) == (404, "BLOB_NOT_FOUND")
    assert error_of(api.http.get(f"/sessions/0123456789/blobs/{sha256_of(own)}")) == (404, "SESSION_NOT_FOUND")


@pytest.mark.one_process("checks the server's files")
def test_symlink_in_place_of_an_image_is_not_followed(api: Api, server: RunningServer, tmp_path: Path) -> None:
    image = new_image()
    session_id = session_with_images(api, image)
    path = path_of(server, image)
    secret = tmp_path / "secret"
    secret.write_bytes(image)
    path.unlink()
    path.symlink_to(secret)

    assert error_of(api.http.get(f"/sessions/{session_id}/blobs/{path.name}")) == (404, "BLOB_NOT_FOUND")
    api.send_message(session_id, "Look again!", images=[base64_image(image)])
    assert not path.is_symlink()
    assert secret.read_bytes() == image


@pytest.mark.one_process("checks the server's files")
def test_image_is_deleted_with_its_last_message(api: Api, server: RunningServer) -> None:
    first, second = new_image(), new_image()
    one, two = session_with_images(api, first, second), session_with_images(api, first)
    assert stored(server, first, second) == {first, second}

    api.http.delete(f"/sessions/{one}")
    assert stored(server, first, second) == {first}

    api.send_message(two, "And this!", images=[base64_image(second)])
    api.ok(api.http.put(f"/sessions/{two}/messages/0", json={"content": "Look well!"}))
    assert stored(server, first, second) == {first}
    assert api.messages(two)[0]["images"] == [{"sha256": sha256_of(first), "media_type": "image/png"}]

    api.http.delete(f"/sessions/{two}")
    assert stored(server, first, second) == set()


@pytest.mark.one_process("checks the server's files")
def test_regeneration_and_new_prompt_keep_images(api: Api, server: RunningServer, stub: StubServer) -> None:
    session_id = session_with_images(api, image := new_image())
    api.stream_message(session_id)
    api.ok(api.http.put(f"/sessions/{session_id}/system-prompt", json={"content": "Be brief."}))
    api.http.delete(f"/sessions/{session_id}/system-prompt")
    api.send_message(session_id)
    assert stored(server, image)
    assert sent_images(stub) == [[base64_image(image)]]


@pytest.mark.one_process("checks the server's files")
def test_session_deleted_during_turn_leaves_no_image(api: Api, server: RunningServer) -> None:
    image, session_id = new_image(), api.create_session("slow-stream")["session_id"]
    with api.open_stream(session_id, "Look!", images=[base64_image(image)]) as events:
        next(events)
        assert stored(server, image)
        assert api.http.delete(f"/sessions/{session_id}").status_code == 204
    assert not stored(server, image)


def test_idempotency_key_with_another_image_is_refused(api: Api, session_id: str) -> None:
    def send_message(image: bytes) -> httpx.Response:
        body = {"message": "Look!", "images": [base64_image(image)]}
        return api.http.post(f"/chat/{session_id}", json=body, headers={"Idempotency-Key": "k"})

    first = send_message(PNG)
    assert send_message(PNG).json() == first.json()
    assert error_of(send_message(GIF)) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert len(api.messages(session_id)) == 2


def test_image_is_stored_while_ollama_is_down(private_api: Api, private_stub: StubServer) -> None:
    session_id = private_api.create_session(VISION_MODEL)["session_id"]
    private_stub.stop()
    response = private_api.http.post(f"/chat/{session_id}", json={"message": "Look!", "images": [base64_image(PNG)]})
    assert error_of(response) == (502, "OLLAMA_UNREACHABLE")
    with StubServer(port=private_stub.port, speed=0) as stub:
        private_api.send_message(session_id)
        assert sent_images(stub) == [[base64_image(PNG)]]


def test_images_count_towards_context_window(tmp_path: Path) -> None:
    with (
        StubServer(speed=0, models=[Model("eye", ("completion", "vision"), context_length=65536)]) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api = server.api()
        session_id = api.create_session("eye")["session_id"]
        assert api.send_message(session_id, "Hello!")["context_window"]["current_window"] == 8192
        answer = api.send_message(session_id, "Look!", images=[base64_image(numbered_image(i)) for i in range(16)])
        assert answer["context_window"] == {**answer["context_window"], "reason": "usage_threshold"}
        assert answer["context_window"]["current_window"] == 32768
        assert chats(stub)[-1].reload


def test_compaction_summary_has_no_images(tmp_path: Path) -> None:
    def resolve(prompt: Prompt) -> Reply | None:
        return Reply.of("word " * 60) if prompt.user_text.startswith("Turn") else None

    with (
        StubServer(
            speed=0, models=[Model("eye", ("completion", "vision"), context_length=4096)], resolve=resolve
        ) as stub,
        RunningServer(tmp_path, stub.url, summarization_interval_seconds=0) as server,
    ):
        api = server.api()
        session_id = api.create_session("eye")["session_id"]
        kinds: list[str] = []
        for number in range(6):
            kinds += [
                e.type
                for e in api.stream_message(session_id, f"Turn {number}", images=[base64_image(numbered_image(number))])
            ]
        assert "context_compacted" in kinds
        assert "error" not in kinds
        assert not [exchange for exchange in stub.exchanges() if exchange.truncated]
        prompts = [exchange.body["messages"] for exchange in chats(stub)]
        summary_prompts = [messages for messages in prompts if "summary" in messages[0]["content"].lower()]
        assert any("[showed images: 1]" in messages[-1]["content"] for messages in summary_prompts)
        assert all(len(str(messages)) < 4096 for messages in summary_prompts)
        assert base64_image(PNG)[:30] not in str(api.session(session_id)["summary"])
        assert len(sent_images(stub)) < 2 * 6


@pytest.mark.parametrize(("clients", "rounds"), [(3, 2), pytest.param(6, 4, marks=pytest.mark.slow)])
def test_concurrent_sessions_never_lose_a_shared_image(
    api: Api, server: RunningServer, clients: int, rounds: int
) -> None:
    """Deleting the image in one session does not race with storing it in another."""
    image = new_image()

    def create_and_delete_sessions(_: int) -> None:
        for _ in range(rounds):
            session_id = session_with_images(api, image)
            answer = api.http.get(f"/sessions/{session_id}/blobs/{sha256_of(image)}")
            assert answer.status_code == 200, answer.text
            assert api.http.delete(f"/sessions/{session_id}").status_code == 204

    with ThreadPoolExecutor(clients) as threads:
        list(threads.map(create_and_delete_sessions, range(clients)))
    assert not stored(server, image)


def test_fork_keeps_images_of_deleted_origin(api: Api, server: RunningServer, stub: StubServer) -> None:
    origin = session_with_images(api, image := new_image())
    fork = api.http.post(f"/sessions/{origin}/fork").raise_for_status().json()["session_id"]

    api.http.delete(f"/sessions/{origin}")

    assert api.http.get(f"/sessions/{fork}/blobs/{sha256_of(image)}").content == image
    api.send_message(fork, "And now?")
    assert sent_images(stub)[0] == [base64_image(image)]
    api.http.delete(f"/sessions/{fork}")
    assert not stored(server, image)


def export_session(api: Api, session_id: str) -> Any:
    return api.ok(api.http.get(f"/sessions/{session_id}/export"))


def test_markdown_names_the_images(api: Api) -> None:
    session_id = session_with_images(api, PNG, GIF)
    text = api.http.get(f"/sessions/{session_id}/export", params={"format": "markdown"}).text
    assert f"\n\n*(image {sha256_of(PNG)})*\n\n*(image {sha256_of(GIF)})*\n\n" in text


def test_export_transfers_images_to_another_server(api: Api, private_api: Api) -> None:
    images = (new_image(), GIF)
    session_id = session_with_images(api, *images)
    api.send_message(session_id, "Again!", images=[base64_image(images[0])])
    file = export_session(api, session_id)
    assert file["blobs"] == {sha256_of(image): base64_image(image) for image in images}

    (imported,) = private_api.ok(private_api.http.post("/sessions/import", json=file), 201)["sessions"]
    for image in images:
        answer = private_api.http.get(f"/sessions/{imported['session_id']}/blobs/{sha256_of(image)}")
        assert (answer.status_code, answer.content) == (200, image)
    again = export_session(private_api, imported["session_id"])
    for each in (file, again):
        del each["metadata"]["session_id"]
    assert again == file


@pytest.mark.one_process("checks the server's files")
def test_export_without_image_bytes_is_imported(api: Api, server: RunningServer) -> None:
    session_id = session_with_images(api, image := new_image())
    file = export_session(api, session_id)
    del file["blobs"]
    assert api.http.delete(f"/sessions/{session_id}").status_code == 204
    (imported,) = api.ok(api.http.post("/sessions/import", json=file), 201)["sessions"]
    assert not stored(server, image)
    again = export_session(api, imported["session_id"])
    assert (again["messages"], again["blobs"]) == (file["messages"], {})


@pytest.mark.one_process("checks the server's files")
def test_export_of_a_copied_export_has_its_images(api: Api, server: RunningServer) -> None:
    session_id = session_with_images(api, new_image(), new_image())
    file = export_session(api, session_id)
    assert api.http.delete(f"/sessions/{session_id}").status_code == 204
    (server.settings.resolved_sessions_dir / f"{session_id}.json").write_text(json.dumps(file))
    text = api.http.get(f"/sessions/{session_id}/export").text
    assert text.count('"blobs"') == 1
    assert json.loads(text)["blobs"] == file["blobs"]
    assert api.http.delete(f"/sessions/{session_id}").status_code == 204


WRONG_BLOBS: dict[str, Any] = {
    "of another image": ({sha256_of(UNSTORED_IMAGE): base64_image(GIF)}, sha256_of(GIF)),
    "cut short": ({sha256_of(UNSTORED_IMAGE): base64_image(UNSTORED_IMAGE)[:-3]}, "base64"),
    "no image": ({sha256_of(UNSTORED_IMAGE): base64_image(b"#!/bin/sh")}, "not an image"),
    "no text": ({sha256_of(UNSTORED_IMAGE): 1}, "blobs"),
    "a list": ([base64_image(UNSTORED_IMAGE)], "blobs"),
}


@pytest.fixture
def deleted_session(api: Api) -> Any:
    """The export of a session with `UNSTORED_IMAGE`, which the server has deleted."""
    file = export_session(api, session_with_images(api, UNSTORED_IMAGE))
    assert api.http.delete(f"/sessions/{file['metadata']['session_id']}").status_code == 204
    return file


@pytest.mark.one_process("checks the server's files")
@cases("case", WRONG_BLOBS)
def test_wrong_image_bytes_in_import_are_refused(
    api: Api, server: RunningServer, deleted_session: Any, case: str
) -> None:
    wrong, reason = WRONG_BLOBS[case]
    listed = api.http.get("/sessions").headers["X-Total-Count"]
    response = api.http.post("/sessions/import", json=[deleted_session, {**deleted_session, "blobs": wrong}])
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert "Item 1 " in response.json()["error"]["message"]
    assert reason in response.json()["error"]["message"]
    assert api.http.get("/sessions").headers["X-Total-Count"] == listed
    assert not stored(server, UNSTORED_IMAGE)


@pytest.mark.one_process("checks the server's files")
def test_unreferenced_image_bytes_are_not_stored(api: Api, server: RunningServer) -> None:
    image, unreferenced = new_image(), new_image()
    file = export_session(api, session_with_images(api, image))
    file["blobs"][sha256_of(unreferenced)] = base64_image(unreferenced)
    api.ok(api.http.post("/sessions/import", json=file), 201)
    assert stored(server, image, unreferenced) == {image}
