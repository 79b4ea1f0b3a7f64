"""Images in the files of the server: stored once, exported, and deleted with their last message."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mochi_server.sessions import Blob, ChatSession, FileSessionStore
from mochi_stub import StubServer
from tests.api.test_images import (
    UNSTORED_IMAGE,
    VISION_MODEL,
    export_session,
    new_image,
    path_of,
    sent_images,
    session_with_images,
    stored,
    warning_codes,
)
from tests.support.api import Api, error_of
from tests.support.cases import cases
from tests.support.images import GIF, base64_image, sha256_of
from tests.support.server import RunningServer
from tests.support.stores import with_store


@pytest.fixture
def session_id(api: Api) -> str:
    """An empty session with a model that can see."""
    return str(api.create_session(VISION_MODEL)["session_id"])


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
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (
        200,
        gif,
        "image/gif",
    )


def test_missing_image_file_causes_warning(
    api: Api, server: RunningServer, stub: StubServer
) -> None:
    missing, there = new_image(), new_image()
    session_id = session_with_images(api, missing, there)
    path_of(server, missing).unlink()

    assert warning_codes(api.stream_message(session_id, "And now?")) == ["IMAGE_NOT_FOUND"]

    assert sent_images(stub)[0] == [base64_image(there)]
    response = api.http.get(f"/sessions/{session_id}/blobs/{sha256_of(missing)}")
    assert error_of(response) == (404, "BLOB_NOT_FOUND")


def test_image_is_served_only_through_its_session(api: Api) -> None:
    foreign, own = new_image(), new_image()
    session_with_images(api, foreign)
    session_id = session_with_images(api, own)

    for name in (sha256_of(foreign), sha256_of(foreign)[:-1], sha256_of(own).upper(), "none"):
        assert api.http.get(f"/sessions/{session_id}/blobs/{name}").status_code == 404
    response = api.http.get(f"/sessions/{session_id}/blobs/{sha256_of(foreign)}")
    assert error_of(response) == (404, "BLOB_NOT_FOUND")
    assert error_of(api.http.get(f"/sessions/0123456789/blobs/{sha256_of(own)}")) == (
        404,
        "SESSION_NOT_FOUND",
    )


def test_symlink_in_place_of_an_image_is_not_followed(
    api: Api, server: RunningServer, tmp_path: Path
) -> None:
    image = new_image()
    session_id = session_with_images(api, image)
    path = path_of(server, image)
    secret = tmp_path / "secret"
    secret.write_bytes(image)
    path.unlink()
    path.symlink_to(secret)

    assert error_of(api.http.get(f"/sessions/{session_id}/blobs/{path.name}")) == (
        404,
        "BLOB_NOT_FOUND",
    )
    api.send_message(session_id, "Look again!", images=[base64_image(image)])
    assert not path.is_symlink()
    assert secret.read_bytes() == image


class DeletingStore(FileSessionStore):
    """Store that deletes all sessions when the fork of one of them is stored."""

    async def create(self, session: ChatSession, *, images: Sequence[Blob] = ()) -> ChatSession:
        if session.messages:
            for session_id in await self.ids():
                await self.delete(session_id)
        return await super().create(session, images=images)


def test_fork_of_a_session_that_is_deleted_meanwhile_is_not_found(
    tmp_path: Path, stub: StubServer
) -> None:
    with RunningServer(
        tmp_path, stub.url, with_store(DeletingStore), summarization_enabled=False
    ) as server:
        api = server.client
        origin = session_with_images(api, new_image())
        assert error_of(api.http.post(f"/sessions/{origin}/fork")) == (404, "SESSION_NOT_FOUND")
        assert api.ok(api.http.get("/sessions"))["sessions"] == []


def test_image_is_deleted_with_its_last_message(api: Api, server: RunningServer) -> None:
    first, second = new_image(), new_image()
    one, two = session_with_images(api, first, second), session_with_images(api, first)
    assert stored(server, first, second) == {first, second}

    api.http.delete(f"/sessions/{one}")
    assert stored(server, first, second) == {first}

    api.send_message(two, "And this!", images=[base64_image(second)])
    edited = api.ok(api.http.put(f"/sessions/{two}/messages/0", json={"content": "Look well!"}))
    assert stored(server, first, second) == {first, second}
    params = {"message_id": edited["messages"][0]["message_id"]}
    api.http.delete(f"/sessions/{two}/versions", params=params)
    assert stored(server, first, second) == {first}
    assert api.messages(two)[0]["images"] == [
        {"sha256": sha256_of(first), "media_type": "image/png"}
    ]

    api.http.delete(f"/sessions/{two}")
    assert stored(server, first, second) == set()


def test_regeneration_and_new_prompt_keep_images(
    api: Api, server: RunningServer, stub: StubServer
) -> None:
    session_id = session_with_images(api, image := new_image())
    api.stream_message(session_id)
    api.ok(api.http.put(f"/sessions/{session_id}/system-prompt", json={"content": "Be brief."}))
    api.http.delete(f"/sessions/{session_id}/system-prompt")
    api.send_message(session_id)
    assert stored(server, image)
    assert sent_images(stub) == [[base64_image(image)]]


def test_session_deleted_during_turn_leaves_no_image(api: Api, server: RunningServer) -> None:
    image, session_id = new_image(), api.create_session("slow-stream")["session_id"]
    with api.open_stream(session_id, "Look!", images=[base64_image(image)]) as events:
        next(events)
        assert stored(server, image)
        assert api.http.delete(f"/sessions/{session_id}").status_code == 204
    assert not stored(server, image)


def test_export_without_image_bytes_is_imported(api: Api, server: RunningServer) -> None:
    session_id = session_with_images(api, image := new_image())
    file = export_session(api, session_id)
    del file["blobs"]
    assert api.http.delete(f"/sessions/{session_id}").status_code == 204
    (imported,) = api.ok(api.http.post("/sessions/import", json=file), 201)["sessions"]
    assert not stored(server, image)
    again = export_session(api, imported["session_id"])
    assert (again["messages"], again["blobs"]) == (file["messages"], {})


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


@cases("case", WRONG_BLOBS)
def test_wrong_image_bytes_in_import_are_refused(
    api: Api, server: RunningServer, deleted_session: Any, case: str
) -> None:
    wrong, reason = WRONG_BLOBS[case]
    listed = api.http.get("/sessions").headers["X-Total-Count"]
    response = api.http.post(
        "/sessions/import", json=[deleted_session, {**deleted_session, "blobs": wrong}]
    )
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert "Item 1 " in response.json()["error"]["message"]
    assert reason in response.json()["error"]["message"]
    assert api.http.get("/sessions").headers["X-Total-Count"] == listed
    assert not stored(server, UNSTORED_IMAGE)


def test_unreferenced_image_bytes_are_not_stored(api: Api, server: RunningServer) -> None:
    image, unreferenced = new_image(), new_image()
    file = export_session(api, session_with_images(api, image))
    file["blobs"][sha256_of(unreferenced)] = base64_image(unreferenced)
    api.ok(api.http.post("/sessions/import", json=file), 201)
    assert stored(server, image, unreferenced) == {image}
