"""Generator of `docs/reference/stub.md`."""

from collections.abc import Iterable, Iterator
from dataclasses import fields

import docstring_parser

from mochi_stub import Machine, Model
from mochi_stub.config import model_from_properties
from mochi_stub.config.entries import RESPONSES, STREAM, GeneratedResponse, ModelEntry, Response
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

MESSAGE = [
    *(
        "content",
        *(
            name
            for name in GeneratedResponse.model_fields
            if name not in {*STREAM, *Response.model_fields}
        ),
    ),
]
MODEL = [name for name in ModelEntry.model_fields if name not in STREAM]
TOP = {
    "models": "A mapping from the name of each model to a list of its entries. Models whose names begin "
    "with `_` are not listed. Use them as parents for `_inherit`.",
    "include": "With `default`, the configuration also has the models of the package. A model of the file "
    "replaces a packaged model with the same name.",
}
ENTRIES = {
    "any text": "A trigger. If the latest user message matches this text, the value is the reply. The value "
    "is a text or a mapping with a [`type`](#types-of-response). The mapping can contain the key "
    "[`match`](#match).",
    "_inherit": "The name of another model. Its entries apply where this model has none.",
    "_turns": "The turns of a recorded conversation, each `{user, replies}`. `user` is the user message, "
    "and `replies` are the replies that follow each other in the turn, for example one with tool "
    "calls and one after their results. If several turns have the same `user`, the number of "
    "user messages in the prompt determines the turn.",
    "_default": "The reply if no trigger matches.",
    "_model": "[Properties of the model](#describe-a-model) and defaults for "
    "[streaming](#stream-a-reply).",
    "match": "How `text` is compared with the latest user message. `exact` (default): the message is "
    "equal to `text`. `substring`: the message contains `text`. `regex`: `text` is a Python "
    "regular expression that matches any part of the message.",
}
TYPES = {
    "message": "The text of `content`.",
    "echo": "The latest user message, unchanged.",
    "mirror": "The request as JSON.",
    "lorem": "The built-in reply: filler text, followed by the latest user message.",
    "task": "The JSON that Open WebUI requests for a title, tags, queries, follow-ups, an image prompt, "
    "a completion, an emoji or a function call. Other requests get the built-in reply.",
    "demo": "The reply of the model `mochi-demo`: a short sentence, calls of the offered tools that the "
    "message names, or a sentence with the results of these calls.",
    "embedding": "A fixed vector as the response to an embedding request.",
    "error": "An error instead of a reply.",
    "file": "A recorded reply. If the file is missing or invalid, the reply is an error that names "
    "the problem.",
}
OWN_KEYS = {
    "embedding": {"vector": "`zero` for a vector of zeros, or a list of numbers."},
    "error": {
        "status": "The HTTP status, from 400 to 599. Default: 500.",
        "message": "The text of the error. It is sent in the error format of the provider.",
        "headers": "A mapping of HTTP headers. The names `connection`, `content-length`, `content-type` and "
        "`transfer-encoding` are rejected, because the server sets these headers itself.",
    },
    "file": {"path": "The recorded file, relative to the folder of the configuration."},
}
CONTENT = {
    "content": "A text, or a list of texts that are sent as separate chunks.",
    "reasoning": "The reasoning before the text: a text or a list of texts.",
    "tool_calls": "A list of tool calls, each `{name, arguments, id}`.",
    "usage": "Token counts: `input`, `output` (including reasoning), `reasoning`, `cache_read`, "
    "`cache_creation`. If a count is missing, the stub calculates it.",
    "durations": "Durations in seconds: `total`, `load`, `prompt_eval`, `eval`. The API of Ollama reports "
    "them. The reply begins after `load` and `prompt_eval`, and its text takes `eval`.",
    "finish": "Finish reason: `stop`, `length` or `content_filter`.",
    "think_tags": "`true` puts the reasoning into the text, between `<think>` and `</think>`.",
}
STREAMING = {
    "profile": "Size of the chunks. `token`: 4 characters, `chunky`: 40 characters, `words`: five words.",
    "tokens_per_second": "Speed. A reply takes (characters / `chars_per_token`) / `tokens_per_second` seconds.",
    "jitter": "Maximum fraction of a chunk's delay by which the chunk is sent early, from 0 to 1. The same "
    "user message and seed always give the same jitter.",
    "delay": "Additional delay before each chunk, in seconds.",
    "pause": "A pause of `seconds` after a number of chunks, for example `{after: 2, seconds: 10}`.",
    "fail": "An error after a number of chunks: `{after: 2, status: 429, message: Slow down, "
    "headers: {}}`.",
    "cut_after": "Number of chunks after which the stream ends early, without its last object.",
}


def stub_page() -> str:
    return page("Configuration of mochi-stub", INTRODUCTION, list(_groups()))


def keys() -> Iterator[str]:
    """Yield everything that has a heading."""
    yield from (
        *TOP,
        *ENTRIES,
        *(f"type: {name}" for name in RESPONSES),
        *MESSAGE,
        *MODEL,
        *STREAM,
    )
    yield from (f"Machine.{field.name}" for field in fields(Machine))


def _groups() -> Iterator[str]:
    yield "## Top level"
    yield from _described(TOP)
    yield "## Entries of a model"
    yield from _described(ENTRIES)
    yield "## Types of response\n\nA mapping has a `type`. A plain text is a `message`."
    for name, text in TYPES.items():
        yield f"### `type: {name}`\n\n{text}"
        if name in OWN_KEYS:
            yield "\n".join(f"- `{key}`: {text}" for key, text in OWN_KEYS[name].items())
    yield (
        "## Content of a reply\n\nThese keys belong to `message`, `echo`, `mirror`, `lorem`, "
        "`task` and `demo`. Only `message` has `content`."
    )
    yield from _described(CONTENT)
    yield (
        "## Stream a reply\n\nThese keys belong to all types except `error` and `embedding`. In "
        "`_model` they are defaults."
    )
    yield from _described(STREAMING)
    yield "## Describe a model\n\nThese keys of `_model` are optional and inherited."
    default = model_from_properties("", {}, 0)
    yield from _described(
        {name: f"{text}{_default(default, name)}" for name, text in _model().items()}
    )
    yield (
        "## Limits of the machine\n\nThese are not keys of the file. They are arguments of "
        "`Machine` in Python and options of the command, for example `--max-queue` for "
        "`max_queue`."
    )
    machine = _attributes(Machine).items()
    yield from _described(
        {f"Machine.{name}": f"{text}{_default(Machine(), name)}" for name, text in machine}
    )


def _model() -> dict[str, str]:
    attributes = _attributes(Model)
    former = " An earlier name of this key, `habit`, also works."
    return {name: attributes[name] + (former if name == "template_style" else "") for name in MODEL}


def _default(made: object, name: str) -> str:
    value = getattr(made, name)
    value = ", ".join(value) if isinstance(value, tuple) else value
    return "" if value in (None, "", {}) or name == "modified_at" else f"\n\n- Default: `{value}`"


def _described(entries: dict[str, str]) -> Iterable[str]:
    return [f"### `{name}`\n\n{text}" for name, text in entries.items()]


def _attributes(kind: type[object]) -> dict[str, str]:
    parsed = docstring_parser.parse(
        kind.__doc__ or "", style=docstring_parser.DocstringStyle.GOOGLE
    )
    return {one.arg_name: prose(one.description) for one in parsed.params}
