"""`/v1/embeddings`"""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from typing import Any

from mochi_stub.answer import Request, Result, Stub
from mochi_stub.wire.asking import embedded
from mochi_stub.wire.openai.errors import find_model, json_answer
from mochi_stub.wire.openai.shapes import texts


def embeddings(stub: Stub, _request: Request, body: dict[str, Any]) -> Result:
    """POST /v1/embeddings"""
    model = find_model(stub, body["model"])
    found = [embedded(stub, model, text, body.get("dimensions")) for text in texts(body["input"])]
    encoded = body.get("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _packed(vector) if encoded else vector}
        for index, (vector, _) in enumerate(found)
    ]
    tokens = sum(count for _, count in found)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json_answer({"object": "list", "data": data, "model": body["model"], "usage": usage})


def _packed(vector: Sequence[float]) -> str:
    """32-bit floats, the low byte first, in base64."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
