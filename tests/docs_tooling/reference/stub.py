"""Generator of `docs/reference/stub.md`."""

from collections.abc import Iterable, Iterator
from dataclasses import fields

import docstring_parser

from mochi_stub import Machine, Model
from mochi_stub.config.entry_readers import MODEL, STREAM, TYPES, model_from_fields
from mochi_stub.config.response_types import (
    KINDS,
    ErrorResponse,
    FileResponse,
    MessageResponse,
    ReplySettings,
    Response,
    Trigger,
    VectorResponse,
)
from tests.docs_tooling.reference.markdown import page, prose

INTRODUCTION = """
Look up a key of a `config.yaml` for [mochi-stub](../stub/index.md). The [guide](../stub/configuration.md) explains how
the keys work together. This file uses some of them:

```yaml
models:
  gpt-4:
    - _model: {capabilities: [completion, tools], chars_per_token: 4}
    - "hello": "Hi there!"
    - _default: {type: echo, tokens_per_second: 20}
```

`mochi-stub check config.yaml` prints each error with its line.
"""

TOP = {
    "models": "A mapping from the name of each model to a list of its entries. Models whose names begin with `_` are "
    "not listed. Use them as parents for `_inherit`.",
    "include": "With `default`, the configuration also has the models of the package. A model of the file replaces a "
    "packaged model with the same name.",
    "recordings": "A folder of recorded files, relative to the folder of the configuration. A request that equals a "
    "recorded request gets the recorded response.",
}
ENTRIES = {
    "any text": "A trigger. If the latest user message matches this text, the value is the reply. The value is a "
    "text or a mapping with a [`type`](#types-of-response). The mapping can contain the key [`match`](#match).",
    "_inherit": "The name of another model. Its entries apply where this model has none.",
    "_default": "The reply if no trigger matches.",
    "_model": "[Properties of the model](#describe-a-model) and defaults for [streaming](#stream-a-reply).",
}
RESPONSES: dict[str, type[Response]] = {"embedding": VectorResponse, "error": ErrorResponse, "file": FileResponse}


def stub_page() -> str:
    return page("Configuration of mochi-stub", INTRODUCTION, list(_groups()))


def keys() -> Iterator[str]:
    """Yield everything that has a heading."""
    yield from (
        *TOP,
        *ENTRIES,
        "match",
        *(f"type: {name}" for name in TYPES),
        *_attributes(MessageResponse),
        *MODEL,
        *STREAM,
    )
    yield from (f"Machine.{field.name}" for field in fields(Machine))


def _groups() -> Iterator[str]:
    yield "## Top level"
    yield from _described(TOP)
    yield "## Entries of a model"
    yield from _described({**ENTRIES, **_attributes(Trigger)})
    yield "## Types of response\n\nA mapping has a `type`. A plain text is a `message`."
    for name in TYPES:
        yield f"### `type: {name}`\n\n{KINDS.get(name) or _summary(RESPONSES[name])}"
        if name in RESPONSES:
            yield "\n".join(f"- `{key}`: {text}" for key, text in _attributes(RESPONSES[name]).items())
    yield (
        "## Content of a reply\n\nThese keys belong to `message`, `echo`, `mirror`, `lorem`, `task` and `demo`. Only "
        "`message` has `content`."
    )
    yield from _described(_attributes(MessageResponse))
    yield (
        "## Stream a reply\n\nThese keys belong to all types except `error` and `embedding`. In `_model` they are "
        "defaults."
    )
    yield from _described({name: _attributes(ReplySettings)[name] for name in STREAM})
    yield "## Describe a model\n\nThese keys of `_model` are optional and inherited."
    default = model_from_fields("", {}, 0)
    yield from _described({name: f"{text}{_default(default, name)}" for name, text in _model().items()})
    yield (
        "## Limits of the machine\n\nThese are not keys of the file. They are arguments of `Machine` in Python and "
        "options of the command, for example `--max-queue` for `max_queue`."
    )
    machine = _attributes(Machine).items()
    yield from _described({f"Machine.{name}": f"{text}{_default(Machine(), name)}" for name, text in machine})


def _model() -> dict[str, str]:
    attributes = _attributes(Model)
    return {name: attributes[name] for name in MODEL}


def _default(made: object, name: str) -> str:
    value = getattr(made, name)
    value = ", ".join(value) if isinstance(value, tuple) else value
    return "" if value in (None, "", {}) or name == "modified_at" else f"\n\n- Default: `{value}`"


def _described(entries: dict[str, str]) -> Iterable[str]:
    return [f"### `{name}`\n\n{text}" for name, text in entries.items()]


def _summary(kind: type[object]) -> str:
    parsed = docstring_parser.parse(kind.__doc__ or "", style=docstring_parser.DocstringStyle.GOOGLE)
    return prose(parsed.description)


def _attributes(kind: type[object]) -> dict[str, str]:
    parsed = docstring_parser.parse(kind.__doc__ or "", style=docstring_parser.DocstringStyle.GOOGLE)
    return {one.arg_name: prose(one.description) for one in parsed.params}
