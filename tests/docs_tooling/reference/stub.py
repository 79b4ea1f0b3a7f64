"""``docs/reference/stub.md``"""

from collections.abc import Iterable, Iterator
from dataclasses import fields

import docstring_parser

from mochi_stub import Machine, Model
from mochi_stub.reading import MODEL, STREAM, TYPES, declared
from mochi_stub.responses import KINDS, Error, File, Manner, Message, Response, Vector
from tests.docs_tooling.reference.markdown import page, prose

INTRODUCTION = """
Every key of a `config.yaml` for [mochi-stub](../stub/index.md). How they work together is in
[its guide](../stub/configuration.md).

```yaml
models:
  gpt-4:
    - _model: {capabilities: [completion, tools], chars_per_token: 4}
    - "hello": "Hi there!"
    - _default: {type: echo, tokens_per_second: 20}
```

`mochi-stub check config.yaml` names every mistake with its line.
"""

TOP = {
    "models": "A mapping: the name of each model, and a list of its entries. Names that begin with `_` are in no list; "
    "they are there to be inherited from.",
    "recordings": "A folder of recorded files, counted from the configuration's folder. They answer the requests that "
    "they were recorded for.",
}
ENTRIES = {
    "any text": "A trigger. When the latest user message is exactly this text, what stands behind it is the answer: a "
    "text, or a mapping with a [`type`](#types-of-response).",
    "_inherit": "The name of another model. What it has counts where this one has nothing.",
    "_default": "The answer where no trigger fits.",
    "_model": "What the model is, and how it streams: see [below](#what-a-model-is).",
}
RESPONSES: dict[str, type[Response]] = {"embedding": Vector, "error": Error, "file": File}


def stub_page() -> str:
    return page("Configuration of mochi-stub", INTRODUCTION, list(_groups()))


def keys() -> Iterator[str]:
    """Everything that has a heading."""
    yield from (*TOP, *ENTRIES, *(f"type: {name}" for name in TYPES), *_attributes(Message), *MODEL, *STREAM)
    yield from (f"Machine.{field.name}" for field in fields(Machine))


def _groups() -> Iterator[str]:
    yield "## Top level"
    yield from _described(TOP)
    yield "## Entries of a model"
    yield from _described(ENTRIES)
    yield "## Types of response\n\nA mapping has a `type`. A plain text is a `message`."
    for name in TYPES:
        yield f"### `type: {name}`\n\n{KINDS.get(name) or _summary(RESPONSES[name])}"
        if name in RESPONSES:
            yield "\n".join(f"- `{key}`: {text}" for key, text in _attributes(RESPONSES[name]).items())
    yield "## What is said\n\nFor `message`, `echo`, `mirror`, `lorem` and `task`; `content` for `message` only."
    yield from _described(_attributes(Message))
    yield "## How it streams\n\nFor every type but `error` and `embedding`. In `_model` it is for all of its replies."
    yield from _described({name: _attributes(Manner)[name] for name in STREAM})
    yield "## What a model is\n\nAll of it is optional and inherited. A model that declares nothing can do all."
    default = declared("", {}, 0)
    yield from _described({name: f"{text}{_default(default, name)}" for name, text in _model().items()})
    yield (
        "## The machine\n\nNot in the file: arguments of `Machine` in Python, and flags of the command (`--max-queue` "
        "for `max_queue`)."
    )
    machine = _attributes(Machine).items()
    yield from _described({f"Machine.{name}": f"{text}{_default(Machine(), name)}" for name, text in machine})


def _model() -> dict[str, str]:
    said = _attributes(Model)
    return {name: said[name] for name in MODEL}


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
