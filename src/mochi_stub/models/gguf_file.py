"""Reader of GGUF files. Their metadata and tensors determine most fields of a `Model`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

MAGIC = b"GGUF"
HIDDEN = ("general.name", "tokenizer.chat_template")
"""Metadata that `/api/show` does not list."""
INSTALL = "reading GGUF files needs a package that is not installed: run pip install 'mochi-server[gguf]'"


class GgufError(ValueError):
    """The data is not a readable GGUF file, or the package `gguf` is not installed."""


def read_gguf(data: bytes) -> dict[str, Any]:
    """Read a GGUF file. Return values for the fields of `Model`, by field name. Raises GgufError."""
    if not data.startswith(MAGIC):
        raise GgufError("supplied file was not in GGUF format")
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - slow, and only needed here

    try:
        from gguf import GGUFReader, LlamaFileType  # noqa: PLC0415 - an optional package, which takes half a second
    except ImportError:
        raise GgufError(INSTALL) from None
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file = Path(folder, "model.gguf")
        file.write_bytes(data)
        try:
            reader = GGUFReader(file)
            metadata = {name: field.contents() for name, field in reader.fields.items() if name[:5] != "GGUF."}
            tensors = [
                {"name": tensor.name, "type": tensor.tensor_type.name, "shape": list(map(int, tensor.shape))}
                for tensor in reader.tensors
            ]
            parameters = sum(int(tensor.n_elements) for tensor in reader.tensors)
        except (ValueError, IndexError, KeyError) as error:
            raise GgufError(f"invalid GGUF file: {error}") from None
    family, file_type = str(metadata.get("general.architecture", "unknown")), metadata.get("general.file_type")
    types = {kind.value: kind.name.removeprefix("MOSTLY_").removeprefix("ALL_") for kind in LlamaFileType}
    chat_template = str(metadata.get("tokenizer.chat_template", ""))
    info = {name: value for name, value in metadata.items() if name not in HIDDEN}
    return {
        "family": family,
        "context_length": int(metadata.get(f"{family}.context_length", 0)),
        "embedding_length": int(metadata.get(f"{family}.embedding_length", 0)),
        "parameter_size": human_number(parameters),
        "quantization": types.get(int(file_type), "unknown") if file_type is not None else "unknown",
        "info": {**info, "general.parameter_count": parameters},
        "chat_template": chat_template,
        "habit": "native" if chat_template else "template",
        "capabilities": _capabilities(metadata, family, chat_template),
        "tensors": tensors,
        "size": len(data),
    }


def _capabilities(metadata: Mapping[str, Any], family: str, chat_template: str) -> tuple[str, ...]:
    if f"{family}.pooling_type" in metadata:
        return ("embedding",)
    found = {
        "tools": "tools" in chat_template,
        "thinking": "<think>" in chat_template or "enable_thinking" in chat_template,
        "completion": True,
        "vision": f"{family}.vision.block_count" in metadata,
    }
    return tuple(name for name, is_present in found.items() if is_present)


def human_number(count: int) -> str:
    """Return a number of parameters as in `/api/show`, for example `8.0B` or `137M`."""
    for unit, size, digits in (("B", 10**9, 1), ("M", 10**6, 2)):
        if count >= size:
            return f"{count / size:.{digits if count % size else 0}f}{unit}"
    return f"{count / 1000:.0f}K" if count >= 1000 else str(count)
