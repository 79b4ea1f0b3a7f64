"""Images: sent with messages, passed to vision models, served, copied and exported."""

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

pytestmark = pytest.mark.two_servers

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


def test_image_is_served_with_safe_headers(api: Api) -> None:
    images = {
        media_type: image + b"<script>alert(1)</script>" for media_type, image in KINDS.items()
    }
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
    assert sent_images(stub) == [
        [base64_image(PNG), base64_image(PNG)],
        None,
        None,
        None,
        [base64_image(GIF)],
    ]

    api.send_message(session_id)
    assert sent_images(stub)[-1] == [base64_image(GIF)]


def test_data_urls_and_line_breaks_are_accepted(
    api: Api, stub: StubServer, session_id: str
) -> None:
    wrapped = "\r\n".join(
        base64_image(PNG)[i : i + 76] for i in range(0, len(base64_image(PNG)), 76)
    )

    api.send_message(
        session_id,
        "Look!",
        images=[f"data:image/svg+xml;charset=utf-8;base64,{base64_image(PNG)}", wrapped],
    )

    assert sent_images(stub) == [[base64_image(PNG), base64_image(PNG)]]
    assert api.messages(session_id)[0]["images"][0]["media_type"] == "image/png"


def test_image_for_model_without_vision_is_refused(api: Api, server: RunningServer) -> None:
    session_id = api.create_session("mochi")["session_id"]
    for path in (f"/chat/{session_id}", f"/chat/{session_id}/stream"):
        response = api.http.post(
            path, json={"message": "Look!", "images": [base64_image(UNSTORED_IMAGE)]}
        )
        assert error_of(response) == (422, "VALIDATION_ERROR")
        assert "'mochi' cannot see" in response.json()["error"]["message"]
    assert api.messages(session_id) == []
    assert not stored(server, UNSTORED_IMAGE)


def test_image_of_an_edit_for_model_without_vision_is_refused(
    api: Api, server: RunningServer
) -> None:
    session_id = api.create_session("mochi")["session_id"]
    api.send_message(session_id, "Hi")
    messages = api.messages(session_id)
    image = new_image()
    images = [base64_image(image)]
    path = f"/sessions/{session_id}/messages/0"

    refused = api.http.put(path, json={"content": "Look!", "images": images})

    assert error_of(refused) == (422, "VALIDATION_ERROR")
    message = api.http.post(f"/chat/{session_id}", json={"message": "Look!", "images": images})
    assert refused.json() == message.json()
    assert api.messages(session_id) == messages
    assert not stored(server, image)
    api.ok(api.http.put(path, json={"content": "Hi!", "images": []}))


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
def test_invalid_image_error_names_its_position(
    api: Api, server: RunningServer, session_id: str, case: str
) -> None:
    response = api.http.post(
        f"/chat/{session_id}",
        json={"message": "Look!", "images": [base64_image(UNSTORED_IMAGE), BROKEN[case]]},
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
def test_too_many_images_or_missing_text_are_refused(
    api: Api, session_id: str, body: dict[str, Any]
) -> None:
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
    response = private_api.http.post(
        f"/chat/{session_id}", json={"message": "Look!", "images": [base64_image(PNG)]}
    )
    assert error_of(response) == (502, "OLLAMA_UNREACHABLE")
    with StubServer(port=private_stub.port, speed=0) as stub:
        private_api.send_message(session_id)
        assert sent_images(stub) == [[base64_image(PNG)]]


def test_edit_with_an_image_is_stored_while_ollama_is_down(
    private_api: Api, private_stub: StubServer
) -> None:
    session_id = session_with_images(private_api, PNG)
    private_stub.stop()
    edit = {"content": "Look!", "images": [base64_image(GIF)]}
    private_api.ok(private_api.http.put(f"/sessions/{session_id}/messages/0", json=edit))
    (message,) = private_api.messages(session_id)
    assert [image["sha256"] for image in message["images"]] == [sha256_of(GIF)]


def test_images_count_towards_context_window(tmp_path: Path) -> None:
    with (
        StubServer(
            speed=0, models=[Model("eye", ("completion", "vision"), context_length=65536)]
        ) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api = server.api()
        session_id = api.create_session("eye")["session_id"]
        assert api.send_message(session_id, "Hello!")["context_window"]["current_window"] == 8192
        answer = api.send_message(
            session_id, "Look!", images=[base64_image(numbered_image(i)) for i in range(16)]
        )
        assert answer["context_window"] == {**answer["context_window"], "reason": "usage_threshold"}
        assert answer["context_window"]["current_window"] == 32768
        assert chats(stub)[-1].reload


def test_compaction_summary_has_no_images(tmp_path: Path) -> None:
    def resolve(prompt: Prompt) -> Reply | None:
        return Reply.of("word " * 60) if prompt.user_text.startswith("Turn") else None

    with (
        StubServer(
            speed=0,
            models=[Model("eye", ("completion", "vision"), context_length=4096)],
            resolve=resolve,
        ) as stub,
        RunningServer(tmp_path, stub.url, summarization_interval_seconds=0) as server,
    ):
        api = server.api()
        session_id = api.create_session("eye")["session_id"]
        kinds: list[str] = []
        for number in range(6):
            kinds += [
                e.type
                for e in api.stream_message(
                    session_id, f"Turn {number}", images=[base64_image(numbered_image(number))]
                )
            ]
        assert "context_compacted" in kinds
        assert "error" not in kinds
        assert not [exchange for exchange in stub.exchanges() if exchange.truncated]
        prompts = [exchange.body["messages"] for exchange in chats(stub)]
        summary_prompts = [
            messages for messages in prompts if "summary" in messages[0]["content"].lower()
        ]
        assert any("[showed images: 1]" in messages[-1]["content"] for messages in summary_prompts)
        assert all(len(str(messages)) < 4096 for messages in summary_prompts)
        assert base64_image(PNG)[:30] not in str(api.session(session_id)["summary"])
        assert len(sent_images(stub)) < 2 * 6


@pytest.mark.parametrize(
    ("clients", "rounds"), [(2, 2), pytest.param(6, 4, marks=pytest.mark.nightly)]
)
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


def test_fork_keeps_images_of_deleted_origin(
    api: Api, server: RunningServer, stub: StubServer
) -> None:
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

    (imported,) = private_api.ok(private_api.http.post("/sessions/import", json=file), 201)[
        "sessions"
    ]
    for image in images:
        answer = private_api.http.get(
            f"/sessions/{imported['session_id']}/blobs/{sha256_of(image)}"
        )
        assert (answer.status_code, answer.content) == (200, image)
    again = export_session(private_api, imported["session_id"])
    for each in (file, again):
        del each["metadata"]["session_id"]
    assert again == file
