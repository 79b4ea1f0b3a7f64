"""Names of models on Ollama's API, and the handlers of `pull`, `create`, `copy` and `delete`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from mochi_stub.handlers import Generation, Result, Stub
from mochi_stub.http import HttpResponse, Request
from mochi_stub.json_encoding import go_dumps, quoted, timestamp
from mochi_stub.models import Model, sha256
from mochi_stub.providers.ollama.request_schema import effective_options
from mochi_stub.providers.provider_pipeline import JSON
from mochi_stub.replies.chunks import Piece
from mochi_stub.reply import Failure, HttpError, Part, Reply, Text

_NAME = re.compile(r"\w[\w.:-]{0,349}/\w[\w-]{0,79}/\w[\w.-]{0,79}:\w[\w.-]{0,79}", re.ASCII)


@dataclass(frozen=True)
class Name:
    """Parsed model name. Missing parts have their default values."""

    host: str
    namespace: str
    model: str
    tag: str

    @property
    def full(self) -> str:
        return f"{self.host}/{self.namespace}/{self.model}:{self.tag}"

    @property
    def short(self) -> str:
        """Name in model lists: without the default host and namespace, but with the tag."""
        return self.full.removeprefix("registry.ollama.ai/library/").removeprefix("registry.ollama.ai/")


def parse_name(text: str) -> Name | None:
    """Parse a model name, or return None if it is malformed."""
    name = split_name(text)
    return name if _NAME.fullmatch(name.full) else None


@lru_cache(maxsize=4096)
def split_name(text: str) -> Name:
    """Split a model name into its parts, without a check of the parts. A URL scheme before the host is dropped."""
    path, colon, tag = text.rpartition(":")
    if not colon or "/" in tag:
        path, tag = text, "latest"
    *prefixes, model = path.split("/")
    host = "/".join(prefixes[:-1]) if len(prefixes) > 1 else "registry.ollama.ai"
    return Name(host.partition("://")[2] or host, prefixes[-1] if prefixes else "library", model, tag)


@lru_cache(maxsize=4096)
def routed(text: str) -> tuple[str, str]:
    """Remove the location suffix of a name. Return the name and "cloud", "local" or "". Raises HttpError."""
    base, _, tag = text.rpartition(":")
    if not base:
        return text, ""
    inner = base.rpartition(":")[2] if ":" in base else ""
    if {tag, inner} == {"cloud", "local"}:
        raise HttpError(400, f"use either :local or :cloud, not both: {quoted(text)}")
    if tag in ("cloud", "local"):
        return base, tag
    if tag.endswith("-cloud"):
        return text.removesuffix("-cloud"), "cloud"
    return text, ""


def find(models: Iterable[Model], name: Name) -> Model | None:
    """Return the model with this name, or None for an unknown name. Names are compared case-insensitively."""
    full_name = name.full.lower()
    return next((model for model in models if split_name(model.name).full.lower() == full_name), None)


def short_name(model: Model) -> str:
    """Return the name that model lists show, including the tag."""
    name = parse_name(model.name)
    return name.short if name else model.name


no_remote = partial(HttpError, 403, "ollama cloud is disabled: remote model is unavailable")
no_remote_details = partial(HttpError, 403, "ollama cloud is disabled: remote model details are unavailable")
invalid_name = partial(HttpError, 400, "invalid model name")
model_required = partial(HttpError, 400, "model is required")


def local_model(
    stub: Stub, name: str, *, error_if_empty: HttpError | None = None, error_if_missing: HttpError | None = None
) -> Model:
    """Return the model with this name.

    Raises `error_if_empty` (default: 400) for an empty name, `error_if_missing` (default: 404) for an unknown name, and
    other HttpErrors for an invalid name (400) and a cloud model (403).
    """
    if not name:
        raise error_if_empty or model_required()
    base_name, location = routed(name)
    if location == "cloud":
        raise no_remote()
    model = find(stub.models, valid_name(base_name))
    if model is None:
        raise error_if_missing or not_found(name)
    return model


def requested_name(body: Mapping[str, Any]) -> str:
    """Return the model name from the field `model` or the deprecated field `name`, or "" if both are missing."""
    return body.get("model") or body.get("name") or ""


def valid_name(text: str, field: str = "") -> Name:
    """Parse a model name. Raises HttpError for an invalid name. The error message begins with `field`, if set."""
    name = parse_name(text)
    if name is None:
        raise HttpError(400, f"{field} {quoted(text)} is invalid") if field else invalid_name()
    return name


def not_found(name: str) -> HttpError:
    return HttpError(404, f"model '{name}' not found")


MODELS = "/usr/share/ollama/.ollama/models"

Step = Mapping[str, Any]


class ProgressLines:
    """Encoder of progress steps as lines. `finish` is called after the last step, unless the client disconnects."""

    content_type = b"application/x-ndjson"

    def __init__(self, finish: Callable[[], None]) -> None:
        self.finish = finish

    def chunk(self, pieces: list[Piece]) -> bytes:
        return "".join([piece.value for piece in pieces]).encode()

    def end(self) -> bytes:
        return self.complete_response().body + b"\n"

    def error(self, failure: Failure) -> bytes:
        return f"{go_dumps({'error': failure.message})}\n".encode()

    def complete_response(self) -> HttpResponse:
        self.finish()
        return HttpResponse(200, b'{"status":"success"}', JSON)


def progress(
    body: Mapping[str, Any],
    steps: Sequence[Step],
    failure: Failure | None = None,
    finish: Callable[[], None] = lambda: None,
) -> Generation:
    """Return a response that sends `steps` as progress lines and then the error `failure`.

    If `failure` is None, `finish` is called after the steps, and the response ends with the status `success`.
    """
    parts: list[Part] = [Text([f"{go_dumps(step)}\n" for step in steps])] if steps else []
    parts += [failure] if failure else []
    return Generation(Reply(parts), ProgressLines(finish), body.get("stream", True), error_content_type=JSON)


def layers(model: Model) -> list[tuple[str, int]]:
    """Return the digest and the size in bytes of each layer, weights first."""
    texts = {
        "template": model.template,
        "license": model.license,
        "system": model.system,
        "params": go_dumps(dict(model.parameters)) if model.parameters else "",
    }
    encoded = [f"{kind} {text}".encode() for kind, text in texts.items() if text]
    return [(model.blob_digest, model.size), *((sha256(text), len(text)) for text in encoded)]


def store(stub: Stub, model: Model, name: Name) -> None:
    """Store a model under a name. A model that has this name is replaced."""
    if existing := find(stub.models, name):
        stub.registry.remove(existing)
    stub.registry.add(replace(model, name=name.short))


def stored_digests(stub: Stub) -> set[str]:
    """Return the digests of the layers of all models."""
    return {digest for model in stub.models for digest, _ in layers(model)}


def blob_path(digest: str) -> str:
    """Return the path at which a real Ollama server stores a blob."""
    return f"{MODELS}/blobs/sha256-{digest}"


REGISTRY = "registry.ollama.ai"
PARTS = 4
"""Number of parts in which the download of a layer is reported."""
OK = HttpResponse(200)
CREATE_FIELDS = ("from", "system", "parameters", "template")
NO_FILES = "mochi-stub stores no files and pushes no models"


def pull(stub: Stub, _request: Request, body: dict[str, Any]) -> Result:
    scheme, separator, text = requested_name(body).partition("://")
    scheme, text = (scheme, text) if separator else ("https", scheme)
    name = valid_name(text)
    steps: list[Step] = [{"status": "pulling manifest"}]
    if name.host != REGISTRY:
        return progress(body, steps, Failure(_connection_error(scheme, name)))
    model = find(stub.models, name) or find(stub.registry.declared, name)
    if model is None:
        return progress(body, steps, Failure("pull model manifest: file does not exist"))
    stored = stored_digests(stub)
    for digest, size in layers(model):
        step = {"status": f"pulling {digest[:12]}", "digest": f"sha256:{digest}", "total": size}
        completed = (size,) if digest in stored else tuple(size * part // PARTS for part in range(PARTS + 1))
        steps += [{**step, "completed": count} if count else step for count in completed]
    steps += [{"status": "verifying sha256 digest"}, {"status": "writing manifest"}]
    return progress(body, steps, finish=lambda: stub.registry.add(model))


def _connection_error(scheme: str, name: Name) -> str:
    url = f"{scheme}://{name.host}/v2/{name.namespace}/{name.model}/manifests/{name.tag}"
    return f"pull model manifest: Get {quoted(url)}: dial tcp {name.host}: connect: connection refused"


def create(stub: Stub, request: Request, body: dict[str, Any]) -> Result:
    """Handle `POST /api/create`: create a model from another model. Capabilities are those of the other model."""
    name = valid_name(requested_name(body))
    if refused := sorted(body.keys() - {"model", "name", "stream", *CREATE_FIELDS}):
        message = f"mochi-stub creates models only with {', '.join(CREATE_FIELDS)}; remove {', '.join(refused)}"
        raise HttpError(400, message)
    if not body.get("from"):
        return progress(body, [], Failure("neither 'from' or 'files' was specified", 400))
    source = find(stub.models, valid_name(body["from"]))
    if source is None:
        return progress(body, [{"status": "pulling manifest"}], Failure("pull model manifest: file does not exist"))
    stored = stored_digests(stub)
    model = replace(_created(source, body), modified_at=timestamp(stub.seeded_ids(request.body).start))
    kinds = {True: "using existing", False: "creating new"}
    steps: list[Step] = [{"status": f"{kinds[digest in stored]} layer sha256:{digest}"} for digest, _ in layers(model)]
    return progress(body, [*steps, {"status": "writing manifest"}], finish=lambda: store(stub, model, name))


def _created(source: Model, body: Mapping[str, Any]) -> Model:
    """Return the model that a request describes. Raises HttpError for parameters of a wrong type."""
    effective_options(Model(""), body.get("parameters", {}))  # checks the types
    model = replace(
        source,
        weights=source.blob_digest,
        parent=short_name(source),
        system=body.get("system") or source.system,
        template=body.get("template") or source.template,
        parameters={**source.parameters, **body.get("parameters", {})},
    )
    return replace(model, manifest=sha256(" ".join(digest for digest, _ in layers(model)).encode()))


def copy(stub: Stub, _request: Request, body: dict[str, Any]) -> Result:
    """Handle `POST /api/copy`: store a model under a second name."""
    source, destination = (valid_name(body.get(field, ""), field) for field in ("source", "destination"))
    model = find(stub.models, source)
    if model is None:
        raise HttpError(404, f"model {quoted(body['source'])} not found")
    store(stub, replace(model, weights=model.blob_digest, manifest=model.digest), destination)
    return OK


def delete(stub: Stub, _request: Request, body: dict[str, Any]) -> Result:
    name = requested_name(body)
    if not name:
        raise model_required()
    model = find(stub.models, valid_name(name, "name"))
    if model is None:
        raise not_found(name)
    stub.registry.remove(model)
    return OK
