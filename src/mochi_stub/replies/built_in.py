"""Built-in replies, replies to the background tasks of Open WebUI, and replies of the demo
model.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from mochi_stub.prompt import Prompt
from mochi_stub.replies import hash_sized, lorem, shortened, stable_hash
from mochi_stub.replies.schema_sample import schema_sample
from mochi_stub.replies.tool_choice import COMMON, Function, call_of, functions, functions_to_call
from mochi_stub.reply import Part, Reasoning, Reply, Text

MAX_SENTENCE = 200
MAX_TOPICS = 5
_SUMMARIZE = re.compile(
    r"\bsummar(?:y|i[sz]e|i[sz]ing)\b.{0,120}\b(?:conversations?|chats?|dialogues?|discussions?|messages|history)\b",
    re.IGNORECASE | re.DOTALL,
)
_SPEAKER = r"^[ \t>*\[-]*({}user|human|assistant|ai|model|tool)\b[\]*]*\s*:"
_TURN = re.compile(
    rf"{_SPEAKER.format('')}\**[ \t]*(.*?)(?={_SPEAKER.format('?:')}|^[ \t]*</|\Z)",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
_SENTENCE = re.compile(r"(.+?[.!?])(?:\s|$)|(.+)")
_WORD = re.compile(r"[^\W\d_]{4,}")
AUTOCOMPLETE = {"9+10=": "THIS IS A TEST OF MINI-MEDIATOR'S AUTOCOMPLETE SYSTEM."}
EMOJI = ("😀", "😂", "😊", "🤔", "😢", "😡", "😱", "👍")
TITLE_WORDS = 5
_USERS = {"user", "human"}
_GREETINGS = {
    "hello",
    "good",
    "morning",
    "evening",
    "afternoon",
    "greetings",
    "there",
    "thanks",
    "thank",
}

_JSON_FORMAT = re.compile(
    r"JSON format:\s*`?\s*(?=\{)", re.IGNORECASE
)  # followed by an example of the reply
_HISTORY = re.compile(r"<chat_history>(.*?)</chat_history>", re.DOTALL)
_USER_LINE = re.compile(
    r"^[ \t]*USER:\s*(.+?)\s*(?=^\s*[A-Z]+:|\Z)", re.DOTALL | re.MULTILINE | re.IGNORECASE
)
_TEXT = re.compile(r"<text>(?!\{)(.*?)</text>", re.DOTALL)
_MESSAGE = re.compile(r"(?:Message|Query):\s*(.+)", re.DOTALL)
_TOOLS = re.compile(r"Available Tools:\s*(?=\[)")


def default_reply(prompt: Prompt) -> Reply:
    """Return the built-in reply to a prompt.

    For an embedding request, the reply is empty and the API adds a vector.
    """
    if prompt.operation == "embed":
        return Reply(rule="built-in: embedding of the text")
    reasons = prompt.thinks and "\nReason:" in prompt.user_text
    reasoning = _lorem_and_echo(Reasoning, prompt.user_text) if reasons else []
    summary = _summary(prompt)
    parts: list[Part]
    if prompt.format is not None:
        rule = "format"
        sample = _format_sample(prompt, summary)
        is_plain = prompt.plain_text and isinstance(sample, str)
        parts = [Text(sample if is_plain else _json(sample))]
    elif summary is not None:
        rule = "summary"
        text, topics = summary
        parts = [Text(f"{text}\n\nTopics: {', '.join(topics)}")]
    elif prompt.after_tools:
        rule = "tool result"
        parts = _lorem_and_echo(Text, prompt.messages[-1].content)
    else:
        rule = "lorem and echo"
        parts = _lorem_and_echo(Text, prompt.user_text)
    return Reply([*reasoning, *parts], rule=f"built-in: {rule}")


def requests_summary(prompt: Prompt, *, by_user: bool = True) -> bool:
    """Return whether the prompt contains a conversation and requests a summary of it.

    The format of the reply, a system message or, if `by_user` is true, the latest user message can
    request a summary.
    """
    instructions = _system(prompt) + ([prompt.user_text] if by_user else [])
    # this test saves 17 ms for an instruction of 100,000 characters without the word
    candidates = [text for text in instructions if "ummar" in text.lower()]
    requested = _has_summary(prompt.format) or any(map(_SUMMARIZE.search, candidates))
    return requested and bool(_turns(prompt))


def _lorem_and_echo(kind: type[Text] | type[Reasoning], message: str) -> list[Part]:
    filler = kind(hash_sized(message))
    return [filler, kind(f" {message}")] if message else [filler]


def _format_sample(prompt: Prompt, summary: tuple[str, list[str]] | None) -> Any:
    if not isinstance(prompt.format, dict):
        return {"response": f"{hash_sized(prompt.user_text)} {prompt.user_text}".rstrip()}
    sample = schema_sample(prompt.format, stable_hash(prompt.user_text))
    if summary is None or not _has_summary(prompt.format) or not isinstance(sample, dict):
        return sample
    text, topics = (prompt.format["properties"][name] for name in ("summary", "topics"))
    return {
        **sample,
        "summary": summary[0][: text.get("maxLength")],
        "topics": summary[1][: topics.get("maxItems")],
    }


def _summary(prompt: Prompt) -> tuple[str, list[str]] | None:
    if not requests_summary(prompt):
        return None
    turns = _turns(prompt)
    words = Counter[str]()
    sentences = []
    for speaker, text in _without_greeting(turns):
        words.update(word for word in _WORD.findall(text.lower()) if word not in COMMON)
        sentences.append(f"{speaker.capitalize()}: {_first_sentence(text)}")
    topics = [word for word, _ in words.most_common(MAX_TOPICS)]
    return " ".join(sentences), topics


def _without_greeting(turns: list[tuple[str, str]]) -> list[tuple[str, str]]:
    for index, (speaker, text) in enumerate(turns):
        if speaker.lower() in _USERS and _topics(text):
            return turns[index:]
    return turns


def _topics(text: str) -> set[str]:
    return set(_WORD.findall(text.lower())) - COMMON - _GREETINGS


def _has_summary(schema: Any) -> bool:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    found = (
        [properties.get(name) for name in ("summary", "topics")]
        if isinstance(properties, dict)
        else []
    )
    return [value.get("type") for value in found if isinstance(value, dict)] == ["string", "array"]


def _system(prompt: Prompt) -> list[str]:
    return [message.content for message in prompt.messages if message.role == "system"]


def _turns(prompt: Prompt) -> list[tuple[str, str]]:
    for instruction in reversed([*_system(prompt), prompt.user_text]):
        quoted = [
            (speaker, text.strip()) for speaker, text in _TURN.findall(instruction) if text.strip()
        ]
        if quoted:
            return quoted
    before = prompt.messages[: max(prompt.last_user, 0)]
    spoken = [
        message
        for message in before
        if message.role in ("user", "assistant") and message.content.strip()
    ]
    return [(message.role, message.content) for message in spoken]


def _first_sentence(text: str) -> str:
    found = _SENTENCE.match(" ".join(text.split()))
    sentence = shortened(found[0].strip(), MAX_SENTENCE) if found else ""
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


def ui_task_reply(prompt: Prompt) -> str | None:
    """Return the reply to a background task of Open WebUI, such as a chat title.

    Return None for other prompts.
    """
    text = prompt.user_text
    full_text = "\n".join(message.content for message in prompt.messages)
    if text in AUTOCOMPLETE:
        return AUTOCOMPLETE[text]
    if '"tool_calls"' in full_text and (tools := _TOOLS.search(full_text)):
        query = text.rpartition("Query:")[2].strip()  # the user message that Open WebUI quotes
        chosen = functions_to_call(
            functions(_decoded(full_text, tools.end())), query, by_description=True
        )
        calls = [call_of(function, query) for function in chosen]
        return _json(
            {"tool_calls": [{"name": call.name, "parameters": call.arguments} for call in calls]}
        )
    if "### Task:" in full_text:
        for match in _JSON_FORMAT.finditer(full_text):
            example = _decoded(full_text, match.end())
            if isinstance(example, dict):
                return _json(
                    {key: _task_value(key, value, full_text) for key, value in example.items()}
                )
    if "emoji" in full_text and "facial expression" in full_text:
        return EMOJI[stable_hash(_topic(text)) % len(EMOJI)]
    return None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _decoded(text: str, start: int) -> Any:
    try:
        return json.JSONDecoder().raw_decode(text, start)[0]
    except (json.JSONDecodeError, RecursionError):
        return None


def _task_value(key: str, example: Any, text: str) -> Any:
    topic = _topic(text)
    if key == "text":
        texts = _TEXT.findall(text)
        typed = texts[-1].strip() if texts else ""
        return next(
            (phrase for start, phrase in AUTOCOMPLETE.items() if typed.endswith(start)),
            lorem(TITLE_WORDS),
        )
    if isinstance(example, list):
        words = re.findall(r"[^\W\d_]{3,}", topic) or ["Chat"]
        return [_list_item(key, index, topic, words) for index in range(len(example) or 1)]
    if not isinstance(example, str):
        return example
    if key == "title":
        return " ".join([EMOJI[stable_hash(topic) % len(EMOJI)], *topic.split()[:TITLE_WORDS]])
    return topic or lorem(TITLE_WORDS)


def _list_item(key: str, index: int, topic: str, words: list[str]) -> str:
    word = words[index % len(words)]
    if key == "tags":
        return word.capitalize()
    if key == "follow_ups":
        return f"What else about {word} ({index + 1})?"
    return f"{topic} {word}" if index else topic


def _topic(text: str) -> str:
    histories = _HISTORY.findall(text)
    found = (
        _USER_LINE.findall(histories[-1] if histories else text)
        or histories
        or _MESSAGE.findall(text)
        or [text]
    )
    return " ".join(found[-1].replace("`", " ").split())[:200]


MAX_RESULT = 400
PLAN = "Plan: "
_JSON_REQUEST = re.compile(
    r"\b(respond|return|reply|answer|outputs?|provide|format)\b.{0,200}\bjson", re.I | re.S
)
_DSPY_NOTES = {"int value": "integer", "float value": "number", "True or False": "boolean"}
_PLANNING = re.compile(r"\bplan\b", re.IGNORECASE)
_UNKNOWN_TOOL = re.compile(
    r"\b(?:use|call|run|with|ask)\s+(?:the\s+)?(?:tool\s+|agent\s+)?`?(\w+_\w+|agent)\b",
    re.IGNORECASE,
)
_REPLIES = (  # patterns of messages, with the reply to each
    (r"\b(?:thanks|thank you)\b", "You are welcome!"),
    (r"^\W*(?:bye|goodbye|good night|see you)\b", "Goodbye! It was nice to talk to you."),
    (
        r"\b(?:who|what) are you\b|\bwhat can you do\b|\byour name\b|^\W*help\b",
        "I am mochi-demo, a simulated model for tests and first steps. {abilities}",
    ),
    (
        r"^\W*(?:hi|hello|hey|good (?:morning|afternoon|evening))\b",
        "Hello! I am mochi-demo, a simulated model. {abilities}",
    ),
    (
        r"\?\W*$",
        "You asked: “{message}” A real model can answer that. I am only a demo. {abilities}",
    ),
    (r"", "You wrote: “{message}” I am only a demo and cannot say more about it. {abilities}"),
)


def demo_reply(prompt: Prompt) -> Reply:
    """Return the reply of the demo model to a prompt."""
    schema = _prompted_schema(prompt)
    if (
        prompt.operation == "embed"
        or (prompt.format is not None and not schema)
        or requests_summary(prompt)
    ):
        return default_reply(prompt)
    task, plans = _task(prompt)
    offered = functions(prompt.tools)
    named = functions_to_call(functions(prompt.required_tools) or offered, task)
    reasoning = f"The user wrote: {_quoted(task)}" if prompt.think else ""
    if named and not plans and not prompt.results:
        return Reply.of(
            reasoning=reasoning, tool_calls=[call_of(function, task) for function in named]
        )
    if schema:
        return default_reply(replace(prompt, format=schema))
    text = (
        _plan(task, named) if plans else _answer_from_results(prompt) or _small_talk(task, offered)
    )
    return Reply.of(text, reasoning=reasoning)


def _prompted_schema(prompt: Prompt) -> Any:
    """Return the last JSON schema in the instructions if the request asks for JSON, or None."""
    if prompt.format not in (None, "json"):
        return None
    instructions = [
        message.content for message in prompt.messages if message.role in ("system", "user")
    ]
    text = "\n".join(instructions)
    if prompt.format is None and not _JSON_REQUEST.search(text):
        return None
    for found in reversed(_objects(text)):
        schema = _schema(found)
        if schema:
            return schema
    return None


def _objects(text: str) -> list[dict[str, Any]]:
    objects = []
    at = text.find("{")
    while at >= 0:
        end = at + 1
        with suppress(json.JSONDecodeError, RecursionError):
            found, end = json.JSONDecoder().raw_decode(text, at)
            objects.append(found)
        at = text.find("{", end)
    return objects


def _schema(found: dict[str, Any]) -> Any:
    """Return a JSON schema, the schema of an object of placeholders such as `{"name": "{name}"}`,
    or None.
    """
    if found and all(_is_placeholder(name, text) for name, text in found.items()):
        fields = {name: _field_schema(text) for name, text in found.items()}
        return {"type": "object", "properties": fields}
    if found.keys() & {"$ref", "allOf", "anyOf", "items", "oneOf"}:
        return found
    properties = found.get("properties")
    if not isinstance(properties, dict):
        return None
    declares_fields = all(isinstance(each, dict) for each in properties.values())
    return found if declares_fields else None


def _is_placeholder(name: str, value: Any) -> bool:
    return isinstance(value, str) and value.startswith(f"{{{name}}}")


def _field_schema(placeholder: str) -> Any:
    _, _, schema = placeholder.partition("JSON schema:")
    objects = _objects(schema)
    if objects:
        return objects[0]
    for note, kind in _DSPY_NOTES.items():
        if note in placeholder:
            return {"type": kind}
    return {"type": "string"}


def _task(prompt: Prompt) -> tuple[str, bool]:
    """Return the message to reply to, and whether the reply is a plan.

    A program that runs an agent sends an instruction, then a request for a plan, and later a
    request to carry it out. For both requests, the message to reply to is the instruction.
    """
    users = [index for index, message in enumerate(prompt.messages) if message.role == "user"]
    if len(users) > 1 and _PLANNING.search(prompt.user_text):
        before = prompt.messages[users[-2]].content
        between = prompt.messages[users[-2] + 1 : users[-1]]
        if not between:
            return before, True
        if between[0].role == "assistant" and between[0].content.startswith(PLAN):
            return before, False
    return prompt.user_text, False


def _plan(task: str, named: list[Function]) -> str:
    names = [function.name for function in named]
    if not names:  # a request for a plan can offer no tools
        names = list(dict.fromkeys(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", task)))
    if names:
        return f"{PLAN}I call {_listed(names)} and report the result."
    return f"{PLAN}I answer “{_quoted(task)}” without tools."


def _answer_from_results(prompt: Prompt) -> str:
    names: list[str] = []
    for message in prompt.messages:
        names += [call.name for call in message.tool_calls]
    names = names[-len(prompt.results) :]
    sentences = []
    for index, result in enumerate(prompt.results):
        name = result.tool_name or (names[index] if index < len(names) else "") or "the tool"
        text = shortened(" ".join(result.content.split()), MAX_RESULT)
        sentences.append(f"The result of {name} is: {text or 'nothing'}")
    return "\n".join(sentences)


def _small_talk(message: str, offered: list[Function]) -> str:
    unknown = _UNKNOWN_TOOL.search(message)
    if unknown:
        return (
            f"I cannot call {unknown[1]}, because this chat does not offer it. "
            f"{_abilities(offered)}"
        )
    text = next(reply for pattern, reply in _REPLIES if re.search(pattern, message, re.IGNORECASE))
    return text.format(message=_quoted(message), abilities=_abilities(offered))


def _abilities(offered: list[Function]) -> str:
    if not offered:
        return "Enable a tool and name it in a message: then I call it."
    names = [tool.name for tool in offered]
    shown = [*names[:3], f"{len(names) - 3} more"] if len(names) > 4 else names
    return f"Name one of my tools in a message, and I call it: {_listed(shown)}."


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _quoted(message: str) -> str:
    return shortened(" ".join(message.split()), 80)


def _task_reply(prompt: Prompt) -> Reply:
    text = ui_task_reply(prompt)
    return default_reply(prompt) if text is None else Reply.of(text)


BUILT_IN: Mapping[str, Callable[[Prompt], Reply]] = {
    "echo": lambda prompt: Reply.of(prompt.user_text),
    "mirror": lambda prompt: Reply.of(prompt.request.decode(errors="replace")),
    "lorem": default_reply,
    "task": _task_reply,
    "demo": demo_reply,
}
"""Function that generates the reply, for each type of response without own content."""
