"""`/api/create` from models and GGUF files, and what `/api/show` reports about the result."""

from __future__ import annotations

import gc
import hashlib
import sys
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import Model, StubServer
from mochi_stub.models.gguf_file import GgufError, human_number, read_gguf
from tests.stub.requests import RawResponse, send_message, send_request

gguf = pytest.importorskip("gguf")
JINJA = "{% if tools %}{{ tools }}{% endif %}{% if enable_thinking %}<think>{% endif %}"
ARRAYS = {"tokenizer.ggml.tokens": ["<unk>", "a"], "tokenizer.ggml.scores": [0.0, 1.5]}


def gguf_file(
    folder: Path,
    architecture: str = "qwen3",
    *,
    chat_template: str = JINJA,
    extra: Mapping[str, int] | None = None,
    **metadata: Any,
) -> bytes:
    """Return a GGUF file with two tensors. The names of `metadata` get the architecture as a prefix."""
    numpy = pytest.importorskip("numpy")
    file = folder / f"{architecture}.gguf"
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_name("hidden")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_context_length(2048)
    writer.add_embedding_length(64)
    writer.add_token_list(ARRAYS["tokenizer.ggml.tokens"])
    writer.add_token_scores(ARRAYS["tokenizer.ggml.scores"])
    if chat_template:
        writer.add_chat_template(chat_template)
    prefixed = {f"{architecture}.{name}": value for name, value in metadata.items()}
    for name, value in {**prefixed, **(extra or {})}.items():
        writer.add_uint32(name, value)
    writer.add_tensor("token_embd.weight", numpy.zeros((8, 64), dtype=numpy.float32))
    writer.add_tensor("output_norm.weight", numpy.zeros(64, dtype=numpy.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file.read_bytes()


def upload(stub: StubServer, data: bytes) -> str:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert send_request(stub, "POST", f"/api/blobs/{digest}", data).status in (200, 201)
    return digest


def create(stub: StubServer, **fields: Any) -> RawResponse:
    return send_request(stub, "POST", "/api/create", {"model": "mine", **fields})


def show(stub: StubServer, model: str = "mine", **fields: Any) -> Any:
    return send_request(stub, "POST", "/api/show", {"model": model, **fields}).json


def test_model_is_created_from_a_gguf_file(private_stub: StubServer, tmp_path: Path) -> None:
    data = gguf_file(tmp_path)
    digest = upload(private_stub, data)
    size = {"total": len(data), "completed": len(data)}
    assert create(private_stub, files={"model.gguf": digest}).lines == [
        {"status": "parsing GGUF"},
        {"status": "validating GGUF model", "digest": "0" * 19, **size},
        {"status": "verifying conversion"},
        {"status": f"using existing layer {digest}"},
        {"status": "writing manifest"},
        {"status": "success"},
    ]
    shown = show(private_stub)
    assert (shown["template"], shown["capabilities"]) == (JINJA, ["tools", "thinking", "completion"])
    assert {key: shown["details"][key] for key in ("family", "parameter_size", "quantization_level")} == {
        "family": "qwen3",
        "parameter_size": "576",
        "quantization_level": "F16",
    }
    assert shown["tensors"] == [
        {"name": "token_embd.weight", "type": "F32", "shape": [64, 8]},
        {"name": "output_norm.weight", "type": "F16", "shape": [64]},
    ]
    (listed,) = [
        one for one in send_request(private_stub, "GET", "/api/tags").json["models"] if one["name"] == "mine:latest"
    ]
    assert (listed["size"], listed["details"]["context_length"]) == (len(data), 2048)


def test_metadata_has_arrays_only_if_verbose(private_stub: StubServer, tmp_path: Path) -> None:
    create(private_stub, files={"model.gguf": upload(private_stub, gguf_file(tmp_path))})
    for verbose in (False, True):
        info = show(private_stub, verbose=verbose)["model_info"]
        assert {name: info[name] for name in ARRAYS} == (ARRAYS if verbose else dict.fromkeys(ARRAYS))
        assert (info["general.parameter_count"], info["qwen3.context_length"]) == (576, 2048)
        assert not {"general.name", "tokenizer.chat_template", "GGUF.version"} & info.keys()
        assert list(info) == sorted(info)


@pytest.mark.parametrize(
    ("architecture", "metadata", "capabilities"),
    [
        ("bert", {"pooling_type": 1}, ["embedding"]),
        ("gemma3", {"vision.block_count": 2}, ["completion", "vision"]),
        ("llama", {}, ["completion"]),
    ],
)
def test_capabilities_are_read_from_the_metadata(
    private_stub: StubServer, tmp_path: Path, architecture: str, metadata: dict[str, Any], capabilities: list[str]
) -> None:
    data = gguf_file(tmp_path, architecture, chat_template="", **metadata)
    assert create(private_stub, files={"weights": upload(private_stub, data)}).status == 200
    assert show(private_stub)["capabilities"] == capabilities


@pytest.mark.parametrize(
    ("files", "lines"),
    [
        ({"a.gguf": "sha256:" + "0" * 64}, ["parsing GGUF", "open {}/sha256-{}: no such file or directory"]),
        ({"a.gguf": "sha256:12"}, ["parsing GGUF", "invalid digest format"]),
        ({"a.gguf": "BLOB"}, ["parsing GGUF", "supplied file was not in GGUF format"]),
        ({"a.safetensors": "BLOB"}, ["converting model", "mochi-stub does not convert safetensors"]),
    ],
)
def test_unreadable_file_fails_in_the_stream(private_stub: StubServer, files: dict[str, str], lines: list[str]) -> None:
    blob = upload(private_stub, b"blob-x")
    failed = create(private_stub, files={path: blob if value == "BLOB" else value for path, value in files.items()})
    found = [line.get("status") or line["error"] for line in failed.lines]
    expected = [line.format("/usr/share/ollama/.ollama/models/blobs", "0" * 64) for line in lines]
    assert (failed.status, found[0], found[1].startswith(expected[1])) == (200, expected[0], True)


def test_unreadable_file_does_not_stay_in_memory(private_stub: StubServer) -> None:
    tracemalloc.start()
    try:
        upload(private_stub, bytes(4_000_000))
        send_request(private_stub, "GET", "/")  # when it returns, the task of the upload has ended
        private_stub.clear_exchanges()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("part", ["model-00001-of-00002.gguf", "model.gguf"])
def test_split_file_is_refused(private_stub: StubServer, tmp_path: Path, part: str) -> None:
    split = {"split.count": 2} if part == "model.gguf" else {}
    digest = upload(private_stub, gguf_file(tmp_path, extra=split))
    refused = create(private_stub, files={part: digest}, stream=False)
    assert refused.status == 400
    assert refused.json["error"].startswith("mochi-stub does not merge split GGUF files")


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"files": {}}, None),
        ({"files": {}}, "a.bin"),
        ({"from": "mochi", "adapters": {}}, "a.bin"),
    ],
)
def test_file_of_an_unknown_type_is_refused(private_stub: StubServer, fields: dict[str, Any], path: str | None) -> None:
    files = {path: upload(private_stub, b"blob-x")} if path else {}
    name = "adapters" if "adapters" in fields else "files"
    refused = create(private_stub, **{**fields, name: files})
    assert (refused.status, refused.headers["content-type"]) == (400, "application/json")
    assert refused.body == b'{"error":"unknown type"}'


@pytest.mark.parametrize("path", ["../a.gguf", "/a.gguf", "a//b", "", "a/./b"])
def test_file_path_must_be_relative(private_stub: StubServer, path: str) -> None:
    refused = create(private_stub, files={path: "sha256:" + "0" * 64})
    assert (refused.status, refused.headers["content-type"]) == (400, "application/json; charset=utf-8")
    assert refused.json == {"error": "file path must be relative"}


def test_adapter_is_part_of_the_modelfile(private_stub: StubServer, tmp_path: Path) -> None:
    digest = upload(private_stub, gguf_file(tmp_path))
    assert create(private_stub, **{"from": "mochi"}, adapters={"a.gguf": digest}).status == 200
    assert (
        f"\nADAPTER /usr/share/ollama/.ollama/models/blobs/{digest.replace(':', '-')}\n"
        in show(private_stub)["modelfile"]
    )
    refused = create(private_stub, **{"from": "mochi"}, adapters={"a.gguf": digest, "b.gguf": digest})
    assert (refused.status, refused.json) == (400, {"error": "only one adapter is currently supported"})


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"adapters": {"a": ""}}, 400, "invalid digest format"),
        ({"from": "a b"}, 400, "invalid model name"),
        ({"license": [5]}, 500, "json: cannot unmarshal number into Go value of type string"),
        ({"parameters": {"num_ctx": "x"}}, 500, 'option "num_ctx" must be of type integer'),
        ({"quantize": "q4_K_M"}, 500, "quantization is only supported for F16, BF16 and F32 models"),
        (
            {"quantize": "zzz"},
            500,
            "unsupported quantization type ZZZ - supported types are F32, F16, Q4_K_S, Q4_K_M, Q8_0",
        ),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_invalid_part_of_a_model_is_refused(
    private_stub: StubServer, fields: Any, status: int, text: str, stream: bool
) -> None:
    refused = create(private_stub, **{"from": "mochi", "stream": stream, **fields})
    assert (refused.status, refused.json) == (status, {"error": text})


def test_quantization_reports_its_progress(private_stub: StubServer, tmp_path: Path) -> None:
    digest = upload(private_stub, gguf_file(tmp_path))
    lines = create(private_stub, files={"a.gguf": digest}, quantize="q4_K_M").lines
    progress = [line for line in lines if line["status"] == "quantizing F16 model to Q4_K_M"]
    assert [line["completed"] for line in progress] == [progress[0]["total"] // 2, progress[0]["total"]]
    assert any(line["status"].startswith("creating new layer sha256:") for line in lines)
    assert show(private_stub)["details"]["quantization_level"] == "Q4_K_M"


def test_messages_of_a_model_precede_each_conversation(private_stub: StubServer) -> None:
    messages = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Me.\nAlways."}]
    create(private_stub, **{"from": "mochi-chat"}, messages=messages, system="S")
    shown = show(private_stub)
    assert shown["messages"] == messages
    assert shown["modelfile"].endswith('\nMESSAGE user Who?\nMESSAGE assistant "Me.\nAlways."\n')
    rendered = send_message(private_stub, "hello", "mine", _debug_render_only=True).json["_debug_info"]
    assert rendered["rendered_template"] == "system: S\nuser: Who?\nassistant: Me.\nAlways.\nuser: hello"


def test_texts_of_several_lines_are_quoted_as_in_ollama(private_stub: StubServer) -> None:
    create(private_stub, **{"from": "mochi-chat"}, system='Say "x".\nThen stop.', parameters={"stop": ["\n\n", '"']})
    shown = show(private_stub)
    assert 'SYSTEM """Say "x".\nThen stop."""\nPARAMETER stop "\n\n"\nPARAMETER stop "\n' in shown["modelfile"]
    assert [line.split() for line in shown["parameters"].split("\n")] == [["stop", r'"\n\n"'], ["stop", r'"\""']]


def test_template_is_stored_and_not_parsed(private_stub: StubServer) -> None:
    create(private_stub, **{"from": "mochi-native:4b"}, template="{{ .Tools }}{{ if")
    shown = show(private_stub)
    assert shown["modelfile"].count("TEMPLATE {{ .Tools }}{{ if") == 1
    assert shown["capabilities"] == ["tools", "thinking", "completion"]


@pytest.mark.parametrize("habit", ["template", "native", "builtin"])
def test_generated_template_mentions_the_capabilities(habit: Any) -> None:
    models = [
        Model("able", ("completion", "tools", "thinking"), habit=habit),
        Model("plain", habit=habit),
        Model("coder", ("completion", "insert"), habit=habit),
    ]
    with StubServer(models=models) as stub:
        able, plain, coder = (show(stub, model.name)["template"] for model in models)
    names = ("tools", "<think>") if habit == "native" else (".Tools", ".Thinking")
    assert all(name in able and name not in plain for name in names)
    assert (".Suffix" in coder) == (habit != "native")


def test_declared_model_has_tensors_and_a_vocabulary(stub: StubServer) -> None:
    shown = show(stub, "mochi", verbose=True)
    assert shown["tensors"][0]["name"] == "token_embd.weight"
    assert shown["tensors"][0]["shape"] == [4096, len(shown["model_info"]["tokenizer.ggml.tokens"])]
    assert {tensor["type"] for tensor in shown["tensors"]} == {"Q4_K", "F32"}


def test_missing_package_is_reported(private_stub: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    digest = upload(private_stub, b"GGUF and so on")
    refused = create(private_stub, files={"a.gguf": digest}, stream=False)
    assert (refused.status, "pip install 'mochi-server[gguf]'" in refused.json["error"]) == (400, True)


def test_truncated_file_is_refused(tmp_path: Path) -> None:
    data = gguf_file(tmp_path)
    for length in (4, 20, 100, len(data) - 900):
        with pytest.raises(GgufError, match="invalid GGUF file"):
            read_gguf(data[:length])


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (8_030_000_000, "8.0B"),
        (7_000_000_000, "7B"),
        (137_000_000, "137M"),
        (33_210_000, "33.21M"),
        (5400, "5K"),
        (9, "9"),
    ],
)
def test_parameter_counts_are_written_as_in_ollama(count: int, text: str) -> None:
    assert human_number(count) == text
