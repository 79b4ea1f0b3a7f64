"""Built-in replies, replies to the background tasks of Open WebUI, and replies of the demo
model.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain, repeat
from typing import Any, NamedTuple

from mochi_stub.json_encoding import JsonObject
from mochi_stub.prompt import Prompt
from mochi_stub.recorded_reply import get
from mochi_stub.replies import hash_sized, lorem, shortened, stable_hash
from mochi_stub.replies.schema_sample import count_limit, schema_sample
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

# followed by an example of the reply
_JSON_FORMAT = re.compile(r"JSON format:\s*`?\s*(?=\{)", re.IGNORECASE)
_HISTORY = re.compile(r"<chat_history>(.*?)</chat_history>", re.DOTALL)
_USER_LINE = re.compile(
    r"^[ \t]*USER:\s*(.+?)\s*(?=^\s*[A-Z]+:|\Z)", re.DOTALL | re.MULTILINE | re.IGNORECASE
)
_TEXT = re.compile(r"<text>(?!\{)(.*?)</text>", re.DOTALL)
_MESSAGE = re.compile(r"(?:Message|Query):\s*(.+)", re.DOTALL)
_TOOLS = re.compile(r"Available Tools:\s*(?=\[)")


class Turn(NamedTuple):
    """Turn of a conversation to summarize."""

    speaker: str
    text: str


class Summary(NamedTuple):
    """Summary of a conversation, with its most frequent words."""

    text: str
    topics: list[str]


def default_reply(prompt: Prompt) -> Reply:
    """Return the built-in reply to a prompt.

    For an embedding request, the reply is empty and the API adds a vector.
    """
    if prompt.operation == "embed":
        return Reply(rule="built-in: embedding of the text")
    parts: list[Part] = []
    if prompt.includes_reasoning and "\nReason:" in prompt.user_text:
        parts += _lorem_and_echo(Reasoning, prompt.user_text)
    summary = _summary(prompt)
    if prompt.format is not None:
        rule = "format"
        formatted = _formatted(prompt, summary)
        parts.append(Text(formatted))
    elif summary is not None:
        rule = "summary"
        topics = ", ".join(summary.topics)
        parts.append(Text(f"{summary.text}\n\nTopics: {topics}"))
    elif prompt.after_tools:
        rule = "tool result"
        result = prompt.messages[-1]
        parts += _lorem_and_echo(Text, result.content)
    else:
        rule = "lorem and echo"
        parts += _lorem_and_echo(Text, prompt.user_text)
    return Reply(parts, rule=f"built-in: {rule}")


def requests_summary(prompt: Prompt) -> bool:
    """Return whether the prompt contains a conversation and requests a summary of it.

    The format of the reply, a system message or the latest user message can request a summary.
    """
    instructions = [*_system_messages(prompt), prompt.user_text]
    if _describes_summary(prompt.format) or any(map(_mentions_summary, instructions)):
        return bool(_turns(prompt))
    return False


def requests_automatic_summary(prompt: Prompt) -> bool:
    """Return whether a program requests a summary, so that instruction blocks do not apply.

    The format of the reply describes a summary, or a system message requests a summary of the
    conversation that the latest user message quotes.
    """
    if _describes_summary(prompt.format):
        return bool(_turns(prompt))
    if any(map(_mentions_summary, _system_messages(prompt))):
        return bool(_quoted_turns(prompt.user_text))
    return False


def _mentions_summary(instruction: str) -> bool:
    # this test saves 17 ms for an instruction of 100,000 characters without the word
    if "ummar" not in instruction.lower():
        return False
    return _SUMMARIZE.search(instruction) is not None


def _lorem_and_echo(kind: type[Text] | type[Reasoning], message: str) -> list[Part]:
    filler = kind(hash_sized(message))
    if not message:
        return [filler]
    return [filler, kind(f" {message}")]


def _formatted(prompt: Prompt, summary: Summary | None) -> str:
    sample = _format_sample(prompt, summary)
    if prompt.plain_text and isinstance(sample, str):
        return sample
    return _json(sample)


def _format_sample(prompt: Prompt, summary: Summary | None) -> Any:
    user_text = prompt.user_text
    if not isinstance(prompt.format, dict):
        response = f"{hash_sized(user_text)} {user_text}"
        return {"response": response.rstrip()}
    seed = stable_hash(user_text)
    sample = schema_sample(prompt.format, seed)
    if summary is None or not isinstance(sample, dict):
        return sample
    if not _describes_summary(prompt.format):
        return sample
    properties = prompt.format["properties"]
    max_length = count_limit(properties["summary"].get("maxLength"), len(summary.text))
    max_topics = count_limit(properties["topics"].get("maxItems"), MAX_TOPICS)
    return {
        **sample,
        "summary": summary.text[:max_length],
        "topics": summary.topics[:max_topics],
    }


def _summary(prompt: Prompt) -> Summary | None:
    if not requests_summary(prompt):
        return None
    turns = _turns(prompt)
    frequencies = Counter[str]()
    sentences = []
    for turn in _without_greeting(turns):
        for word in _lower_words(turn.text):
            if word not in COMMON:
                frequencies[word] += 1
        speaker = turn.speaker.capitalize()
        sentences.append(f"{speaker}: {_first_sentence(turn.text)}")
    topics = [word for word, _ in frequencies.most_common(MAX_TOPICS)]
    return Summary(" ".join(sentences), topics)


def _without_greeting(turns: list[Turn]) -> list[Turn]:
    """Return the turns from the first topic of a user on, or all turns if no user has a topic."""
    for index, turn in enumerate(turns):
        is_user = turn.speaker.lower() in _USERS
        if is_user and _topic_words(turn.text):
            return turns[index:]
    return turns


def _topic_words(text: str) -> set[str]:
    words = set(_lower_words(text))
    return words - COMMON - _GREETINGS


def _lower_words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _describes_summary(schema: Any) -> bool:
    """Return whether a schema has a text `summary` and an array `topics`."""
    summary = get(schema, "properties", "summary", "type")
    topics = get(schema, "properties", "topics", "type")
    return (summary, topics) == ("string", "array")


def _system_messages(prompt: Prompt) -> list[str]:
    contents = []
    for message in prompt.messages:
        if message.role == "system":
            contents.append(message.content)
    return contents


def _turns(prompt: Prompt) -> list[Turn]:
    """Return the turns of the conversation to summarize.

    An instruction can quote the conversation. The latest user message precedes the system messages,
    of which the last one that quotes turns counts. If none does, the conversation is the messages
    before the latest user message.
    """
    instructions = [*_system_messages(prompt), prompt.user_text]
    for instruction in reversed(instructions):
        quoted = _quoted_turns(instruction)
        if quoted:
            return quoted
    turns = []
    end = max(prompt.last_user_index, 0)
    for message in prompt.messages[:end]:
        if message.role in ("user", "assistant") and message.content.strip():
            turn = Turn(message.role, message.content)
            turns.append(turn)
    return turns


def _quoted_turns(instruction: str) -> list[Turn]:
    turns = []
    for speaker, quoted in _TURN.findall(instruction):
        text = quoted.strip()
        if text:
            turns.append(Turn(speaker, text))
    return turns


def _first_sentence(text: str) -> str:
    line = " ".join(text.split())
    sentence = ""
    found = _SENTENCE.match(line)
    if found:
        sentence = shortened(found[0].strip(), MAX_SENTENCE)
    if sentence.endswith((".", "!", "?")):
        return sentence
    return f"{sentence}."


def ui_task_reply(prompt: Prompt) -> str | None:
    """Return the reply to a background task of Open WebUI, such as a chat title.

    Return None for other prompts.
    """
    text = prompt.user_text
    if text in AUTOCOMPLETE:
        return AUTOCOMPLETE[text]
    contents = [message.content for message in prompt.messages]
    full_text = "\n".join(contents)
    tools = _TOOLS.search(full_text)
    if tools and '"tool_calls"' in full_text:
        _, _, query = text.rpartition("Query:")  # the user message that Open WebUI quotes
        offered = functions(_decoded(full_text, tools.end()))
        return _prompted_calls(offered, query.strip())
    if "### Task:" in full_text:
        reply = _task_values(full_text)
        if reply is not None:
            return _json(reply)
    if "emoji" in full_text and "facial expression" in full_text:
        topic = _topic(text)
        return _emoji(topic)
    return None


def _task_values(text: str) -> JsonObject | None:
    """Return an object like the first example of a reply in the text, or None if there is none."""
    for match in _JSON_FORMAT.finditer(text):
        example = _decoded(text, match.end())
        if not isinstance(example, dict):
            continue
        values = {}
        for key, value in example.items():
            values[key] = _task_value(key, value, text)
        return values
    return None


def _prompted_calls(offered: list[Function], query: str) -> str:
    """Return the tool calls as JSON text, for a client that does not offer tools as such."""
    calls = []
    for function in functions_to_call(offered, query, by_description=True):
        call = call_of(function, query)
        entry = {"name": call.name, "parameters": call.arguments}
        calls.append(entry)
    return _json({"tool_calls": calls})


def _emoji(topic: str) -> str:
    return EMOJI[stable_hash(topic) % len(EMOJI)]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _decoded(text: str, start: int) -> Any:
    """Return the JSON value that begins at `start`, or None if there is none."""
    try:
        return json.JSONDecoder().raw_decode(text, start)[0]
    except (ValueError, RecursionError):  # also for integers of many digits
        return None


def _task_value(key: str, example: Any, text: str) -> Any:
    if key == "text":
        return _completion(text)
    topic = _topic(text)
    if isinstance(example, list):
        count = len(example) or 1
        return _list_items(key, topic, count)
    if not isinstance(example, str):
        return example
    if key == "title":
        words = topic.split()[:TITLE_WORDS]
        return " ".join([_emoji(topic), *words])
    return topic or lorem(TITLE_WORDS)


def _completion(text: str) -> str:
    """Return the continuation of what the user has typed, which is the last `<text>` in `text`."""
    typed = ""
    for found in _TEXT.findall(text):
        typed = found.strip()
    for start, phrase in AUTOCOMPLETE.items():
        if typed.endswith(start):
            return phrase
    return lorem(TITLE_WORDS)


def _list_items(key: str, topic: str, count: int) -> list[str]:
    words = re.findall(r"[^\W\d_]{3,}", topic) or ["Chat"]
    items = []
    for index in range(count):
        word = words[index % len(words)]
        if key == "tags":
            item = word.capitalize()
        elif key == "follow_ups":
            item = f"What else about {word} ({index + 1})?"
        elif index == 0:
            item = topic
        else:
            item = f"{topic} {word}"
        items.append(item)
    return items


def _topic(text: str) -> str:
    """Return the latest message of the user in the text as one line, shortened.

    Without a recognizable message, it is the whole text.
    """
    histories = _HISTORY.findall(text)
    conversation = text
    if histories:
        conversation = histories[-1]
    user_lines = _USER_LINE.findall(conversation)
    found = user_lines or histories or _MESSAGE.findall(text) or [text]
    latest = found[-1].replace("`", " ")
    line = " ".join(latest.split())
    return line[:200]


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
)
_OTHER_REPLY = "You wrote: “{message}” I am only a demo and cannot say more about it. {abilities}"


def demo_reply(prompt: Prompt) -> Reply:
    """Return the reply of the demo model to a prompt."""
    schema = _prompted_schema(prompt)
    has_own_format = prompt.format is not None and not schema
    if prompt.operation == "embed" or has_own_format or requests_summary(prompt):
        return default_reply(prompt)
    task, plans = _task(prompt)
    offered = functions(prompt.tools)
    required = functions(prompt.required_tools)
    named = functions_to_call(required or offered, task)
    reasoning = ""
    if prompt.requested_thinking:
        reasoning = f"The user wrote: {_quoted(task)}"
    if named and not plans and not prompt.unanswered_results:
        calls = [call_of(function, task) for function in named]
        return Reply.of(reasoning=reasoning, tool_calls=calls)
    if schema:
        return default_reply(replace(prompt, format=schema))
    if plans:
        text = _plan(task, named)
    else:
        text = _answer_from_results(prompt) or _small_talk(task, offered)
    return Reply.of(text, reasoning=reasoning)


def _prompted_schema(prompt: Prompt) -> Any:
    """Return the last JSON schema in the instructions if the request asks for JSON, or None."""
    if prompt.format not in (None, "json"):
        return None
    instructions = []
    for message in prompt.messages:
        if message.role in ("system", "user"):
            instructions.append(message.content)
    text = "\n".join(instructions)
    if prompt.format is None and not _JSON_REQUEST.search(text):
        return None
    for found in reversed(_objects(text)):
        schema = _schema_of(found)
        if schema:
            return schema
    return None


def _objects(text: str) -> list[JsonObject]:
    """Return the JSON objects in a text, without those inside others."""
    objects = []
    at = text.find("{")
    while at >= 0:
        end = at + 1
        with suppress(ValueError, RecursionError):
            found, end = json.JSONDecoder().raw_decode(text, at)
            objects.append(found)
        at = text.find("{", end)
    return objects


def _schema_of(found: JsonObject) -> Any:
    """Return the object if it is a JSON schema.

    For an object of placeholders such as `{"name": "{name}"}`, return its schema, and otherwise
    None.
    """
    if _has_placeholders(found):
        fields = {}
        for name, text in found.items():
            fields[name] = _placeholder_schema(text)
        return {"type": "object", "properties": fields}
    if found.keys() & {"$ref", "allOf", "anyOf", "items", "oneOf"}:
        return found
    properties = found.get("properties")
    if not isinstance(properties, dict):
        return None
    for declared in properties.values():
        if not isinstance(declared, dict):
            return None
    return found


def _has_placeholders(found: JsonObject) -> bool:
    for name, value in found.items():
        placeholder = f"{{{name}}}"
        if not isinstance(value, str) or not value.startswith(placeholder):
            return False
    return bool(found)


def _placeholder_schema(placeholder: str) -> Any:
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
    user_indices = []
    for index, message in enumerate(prompt.messages):
        if message.role == "user":
            user_indices.append(index)
    if len(user_indices) < 2 or not _PLANNING.search(prompt.user_text):
        return prompt.user_text, False
    previous, latest = user_indices[-2:]
    instruction = prompt.messages[previous]
    following = prompt.messages[previous + 1]
    if latest == previous + 1:
        return instruction.content, True
    is_plan = following.role == "assistant" and following.content.startswith(PLAN)
    if is_plan:
        return instruction.content, False
    return prompt.user_text, False


def _plan(task: str, named: list[Function]) -> str:
    names = [function.name for function in named]
    if not names:  # a request for a plan can offer no tools
        identifiers = re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", task)
        names = list(dict.fromkeys(identifiers))
    if names:
        return f"{PLAN}I call {_listed(names)} and report the result."
    return f"{PLAN}I answer “{_quoted(task)}” without tools."


def _answer_from_results(prompt: Prompt) -> str:
    """Return a sentence for each unanswered result of a tool. The text is empty without results."""
    results = prompt.unanswered_results
    if not results:
        return ""
    called: list[str] = []
    for message in prompt.messages:
        for call in message.tool_calls:
            called.append(call.name)
    names = called[-len(results) :]
    sentences = []
    for result, name in zip(results, chain(names, repeat("")), strict=False):
        shown = result.tool_name or name or "the tool"
        line = " ".join(result.content.split())
        text = shortened(line, MAX_RESULT) or "nothing"
        sentences.append(f"The result of {shown} is: {text}")
    return "\n".join(sentences)


def _small_talk(message: str, offered: list[Function]) -> str:
    abilities = _abilities(offered)
    unknown = _UNKNOWN_TOOL.search(message)
    if unknown:
        return f"I cannot call {unknown[1]}, because this chat does not offer it. {abilities}"
    text = _OTHER_REPLY
    for pattern, reply in _REPLIES:
        if re.search(pattern, message, re.IGNORECASE):
            text = reply
            break
    return text.format(message=_quoted(message), abilities=abilities)


def _abilities(offered: list[Function]) -> str:
    if not offered:
        return "Enable a tool and name it in a message: then I call it."
    names = [tool.name for tool in offered]
    if len(names) > 4:
        names = [*names[:3], f"{len(names) - 3} more"]
    return f"Name one of my tools in a message, and I call it: {_listed(names)}."


def _listed(names: list[str]) -> str:
    """Join at least one name to a text."""
    *others, last = names
    if not others:
        return last
    return f"{', '.join(others)} and {last}"


def _quoted(message: str) -> str:
    line = " ".join(message.split())
    return shortened(line, 80)


def _task_reply(prompt: Prompt) -> Reply:
    text = ui_task_reply(prompt)
    if text is None:
        return default_reply(prompt)
    return Reply.of(text)


BUILT_IN: Mapping[str, Callable[[Prompt], Reply]] = {
    "echo": lambda prompt: Reply.of(prompt.user_text),
    "mirror": lambda prompt: Reply.of(prompt.request.decode(errors="replace")),
    "lorem": default_reply,
    "task": _task_reply,
    "demo": demo_reply,
}
"""Function that generates the reply, for each type of response without own content."""
