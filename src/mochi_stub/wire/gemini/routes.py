"""Gemini's HTTP interface below a version: paths, models, verbs and embeddings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mochi_stub.answer import ANY, Request, Result, Routes, Stub
from mochi_stub.catalogue import Model
from mochi_stub.prompt import prompt_tokens
from mochi_stub.wire import provider_pipeline as pipeline
from mochi_stub.wire.fields import Problem, read
from mochi_stub.wire.gemini.errors import find_model, json_answer, refusal
from mochi_stub.wire.gemini.generation import generate
from mochi_stub.wire.gemini.request_schema import BATCH, COUNT, EMBED, prompt_of, text_of


def models(stub: Stub, _request: Request) -> Result:
    """GET models"""
    return json_answer({"models": [_shown(model) for model in pipeline.listed(stub.models)]})


def model(stub: Stub, request: Request) -> Result:
    """GET models/{model}"""
    version, name = _named(request)
    missing = pipeline.Refused(404, f"Model is not found: models/{name} for api version {version}")
    return json_answer(_shown(pipeline.declared(stub.models, name, missing)))


def _verb(stub: Stub, request: Request) -> Result:
    """POST models/{model}:{verb}"""
    version, named = _named(request)
    name, _, action = named.rpartition(":")
    if action not in _VERBS:
        return unknown_path(stub, request)
    return _VERBS[action](stub, request, find_model(stub, name, version, action), name)


def unknown_path(_stub: Stub, request: Request) -> Result:
    """Any other path"""
    raise pipeline.Refused(404, f"The requested URL {request.path} was not found on this server.")


def wrong_method(_stub: Stub, request: Request) -> Result:
    """A known path with another method"""
    raise pipeline.Refused(405, f"The request method {request.method} is inappropriate for the URL {request.path}.")


def _count(_stub: Stub, request: Request, model: Model, name: str) -> Result:
    body = read(request.body, COUNT)
    asked = body.get("generateContentRequest", body)
    if "contents" not in asked:
        raise Problem("missing", ("CountTokensRequest", "contents"))
    prompt = pipeline.completed(prompt_of(asked, name, model, stream=False), model)
    return json_answer({"totalTokens": prompt_tokens(prompt, model.chars_per_token)})


def _embed(stub: Stub, request: Request, model: Model, _name: str) -> Result:
    return json_answer({"embedding": _vector(stub, model, read(request.body, EMBED))})


def _embed_batch(stub: Stub, request: Request, model: Model, _name: str) -> Result:
    requests = read(request.body, BATCH)["requests"]
    return json_answer({"embeddings": [_vector(stub, model, one) for one in requests]})


def _vector(stub: Stub, model: Model, asked: dict[str, Any]) -> dict[str, Any]:
    dimensions = asked.get("embedContentConfig", {}).get("outputDimensionality", asked.get("outputDimensionality"))
    vector, _ = pipeline.embedded(stub, model, model.name, text_of(asked["content"]))
    return {"values": pipeline.shortened(vector, dimensions)}


_VERBS: dict[str, Callable[[Stub, Request, Model, str], Result]] = {
    "generateContent": partial(generate, stream=False),
    "streamGenerateContent": partial(generate, stream=True),
    "countTokens": _count,
    "embedContent": _embed,
    "batchEmbedContents": _embed_batch,
}


def _named(request: Request) -> tuple[str, str]:
    """Return the version of the API, and what follows `models/`."""
    before, _, named = request.path.partition("/models/")
    return before.removeprefix("/"), named


def _shown(model: Model) -> dict[str, Any]:
    generating = ["generateContent", "streamGenerateContent", "countTokens"] if model.can("completion") else []
    embedding = ["embedContent", "batchEmbedContents"] if model.can("embedding") else []
    return {
        "name": f"models/{model.name}",
        "version": "001",
        "displayName": model.name,
        "description": f"The stub's model {model.name}",
        "inputTokenLimit": model.context_length,
        "outputTokenLimit": model.context_length,
        "supportedGenerationMethods": generating + embedding,
        **({"thinking": True} if model.can("thinking") else {}),
    }


_HANDLERS: Routes = {"/models": {"GET": models}, "/models/*": {"GET": model, "POST": _verb}, "/*": {ANY: unknown_path}}
ROUTES = pipeline.refusing(_HANDLERS, wrong_method, refusal)
verb = ROUTES["/models/*"]["POST"]
