"""Models, system prompt files and health."""

from pathlib import Path

from mochi_server import __version__
from mochi_stub import StubServer
from mochi_stub.models import Model
from tests.support.api import Api, error_of
from tests.support.cases import cases
from tests.support.server import RunningServer


def test_health_reports_ollama(api: Api, stub: StubServer) -> None:
    assert api.ok(api.http.get("/health")) == {
        "status": "ok",
        "ollama_connected": True,
        "ollama_host": stub.url,
        "version": __version__,
    }


def test_health_never_shows_credentials(tmp_path: Path) -> None:
    with RunningServer(tmp_path, "http://me:secret@127.0.0.1:9/prefix") as server:
        body = server.api().ok(server.api().http.get("/health"))
    assert body["ollama_host"] == "http://127.0.0.1:9/prefix"
    assert body["ollama_connected"] is False


def test_chat_models_are_listed_with_every_field(api: Api, stub: StubServer) -> None:
    models = api.ok(api.http.get("/models"))["models"]
    assert [model["name"] for model in models][:2] == ["mochi:latest", "mochi-chat:latest"]
    assert "mochi-embed:latest" not in {model["name"] for model in models}
    assert models[0] == {
        "name": "mochi:latest",
        "size_mb": 4983.3,
        "format": "gguf",
        "family": "qwen3",
        "parameter_size": "8.2B",
        "quantization_level": "Q4_K_M",
        "capabilities": ["completion", "tools", "thinking"],
        "context_length": 40960,
    }


def test_names_with_slashes_and_colons_work(tmp_path: Path) -> None:
    models = (Model("hf.co/someone/thing:Q4", context_length=512),)
    with StubServer(models=models, speed=0) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        for name in (
            "hf.co/someone/thing:Q4",
            "hf.co%2Fsomeone%2Fthing:Q4",
            "HF.co/Someone/Thing:q4",
        ):
            assert api.ok(api.http.get(f"/models/{name}"))["name"] == "hf.co/someone/thing:Q4"
        session_id = api.create_session("hf.co/someone/thing:Q4")["session_id"]
        assert api.send_message(session_id, "Hi")["context_window"]["current_window"] == 460


def test_model_details_equal_list_entry(api: Api) -> None:
    models = api.ok(api.http.get("/models"))["models"]
    assert (
        "thinking"
        in next(model for model in models if model["name"] == "mochi-native:4b")["capabilities"]
    )
    assert [api.ok(api.http.get(f"/models/{model['name']}")) for model in models[:3]] == models[:3]


def test_slash_after_the_list_of_models_is_ignored(api: Api, server: RunningServer) -> None:
    for path in ("/api/v1/models", "/v1/models"):
        listed, with_slash = (
            api.http.get(f"{server.url}{path}{slash}", follow_redirects=True) for slash in ("", "/")
        )
        assert api.ok(with_slash) == api.ok(listed)


@cases("name", ["nobody", "mochi-embed", "a/b/c:d", "%20"])
def test_unknown_models_are_404(api: Api, name: str) -> None:
    assert error_of(api.http.get(f"/models/{name}")) == (404, "MODEL_NOT_FOUND")


def test_prompt_files_are_created_listed_changed_and_deleted(
    private_api: Api, tmp_path: Path
) -> None:
    for name, content in (("b.txt", "Two words"), ("a.md", "y" * 300)):
        created = private_api.ok(
            private_api.http.post("/system-prompts", json={"filename": name, "content": content}),
            201,
        )
        assert created == {"filename": name, "content": content}

    assert private_api.ok(private_api.http.get("/system-prompts")) == {
        "prompts": [
            {"filename": "a.md", "preview": "y" * 250 + "...", "word_count": 1},
            {"filename": "b.txt", "preview": "Two words", "word_count": 2},
        ]
    }
    assert (
        private_api.ok(
            private_api.http.put("/system-prompts/b.txt", json={"content": "Three words now"})
        )["content"]
        == "Three words now"
    )
    assert private_api.ok(private_api.http.get("/system-prompts/b.txt")) == {
        "filename": "b.txt",
        "content": "Three words now",
    }
    assert (tmp_path / "system_prompts" / "b.txt").read_text() == "Three words now"
    assert private_api.http.delete("/system-prompts/b.txt").status_code == 204
    assert error_of(private_api.http.get("/system-prompts/b.txt")) == (404, "PROMPT_NOT_FOUND")
    assert error_of(private_api.http.put("/system-prompts/b.txt", json={"content": "x"})) == (
        404,
        "PROMPT_NOT_FOUND",
    )
    assert error_of(private_api.http.delete("/system-prompts/b.txt")) == (404, "PROMPT_NOT_FOUND")


def test_line_breaks_of_a_prompt_file_do_not_change(api: Api) -> None:
    prompt = {"filename": "lines.md", "content": "One\r\nTwo\n"}
    assert api.ok(api.http.post("/system-prompts", json=prompt), 201) == prompt
    assert api.ok(api.http.get("/system-prompts/lines.md")) == prompt


def test_prompt_file_that_exists_is_not_overwritten(api: Api) -> None:
    body = {"filename": "kept.md", "content": "First"}
    api.ok(api.http.post("/system-prompts", json=body), 201)
    again = api.http.post("/system-prompts", json=body | {"content": "Second"})
    assert error_of(again) == (409, "PROMPT_EXISTS")
    assert api.ok(api.http.get("/system-prompts/kept.md"))["content"] == "First"


INVALID_NAMES = [
    "a",
    "a.py",
    ".md",
    "..md",
    "../a.md",
    "a/b.md",
    "a\\b.md",
    "/etc/a.md",
    "nul.md",
    "a\0.md",
    "a\n.md",
]


def test_invalid_prompt_file_names_are_422(api: Api) -> None:
    before = api.ok(api.http.get("/system-prompts"))
    for filename in ("", *INVALID_NAMES, "x" * 300 + ".md"):
        response = api.http.post("/system-prompts", json={"filename": filename, "content": "x"})
        assert error_of(response) == (422, "VALIDATION_ERROR"), filename
    assert api.ok(api.http.get("/system-prompts")) == before


@cases("content", ["", " \n", "x" * 10_000, None, 5])
def test_wrong_contents_are_422(api: Api, content: object) -> None:
    body = {"filename": "a.md", "content": content}
    assert error_of(api.http.post("/system-prompts", json=body)) == (422, "VALIDATION_ERROR")


def test_nothing_outside_the_directory_is_read(private_api: Api, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("secret")
    (tmp_path / "system_prompts").mkdir()
    (tmp_path / "system_prompts" / "link.md").symlink_to(tmp_path / "secret.md")
    (tmp_path / "system_prompts" / "loop.md").symlink_to("loop.md")
    for name in ("..%2fsecret.md", "%2e%2e%2fsecret.md", "secret.md%00", "link.md", "loop.md"):
        refused = error_of(private_api.http.get(f"/system-prompts/{name}"))
        assert refused in {(404, "PROMPT_NOT_FOUND"), (404, "NOT_FOUND")}, name
    assert private_api.ok(private_api.http.get("/system-prompts")) == {"prompts": []}
