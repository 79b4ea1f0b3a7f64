"""Configurations: loading and validation of files with the keys in `entries.py`."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, get_args

from mochi_stub.config import entries
from mochi_stub.config.entries import STREAM, ReplySettings, Response
from mochi_stub.json_encoding import JsonObject
from mochi_stub.models import MIN_CONTEXT, Model
from mochi_stub.yaml_file import ConfigError, Document, Location, WatchedFile, is_null, parse

logger = logging.getLogger("mochi_stub")

PACKAGED = Path(__file__).parent / "default.yaml"
FAULT_MODELS = (
    "paused-stream",
    "cut-stream",
    "rate-limited",
    "rate-limited-midway",
    "failing",
    "finish-length",
    "finish-content-filter",
    "weirdo",
    "embed-zero",
)
LATEST_CHANGE = datetime(2026, 1, 15, tzinfo=timezone.utc)
_UNDECLARED = Model(
    name="",
    capabilities=get_args(entries.Capability)[:6],  # all but "audio" and "image"
    context_length=131072,
    embedding_length=768,
)


@dataclass
class Script:
    """Configuration entries of one model: responses by trigger, a default response, and the fields
    of `_model`.
    """

    name: str
    document: Document
    triggers: dict[str, Response] = field(default_factory=dict)
    default: Response | None = None
    turns: list[tuple[str, list[Response]]] = field(default_factory=list)
    parent: str = ""
    parent_path: Location = ()
    properties: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class ConfiguredModel:
    """Model with its default stream settings.

    `scripts` has the model's own script first, then those of its parents.
    """

    model: Model
    settings: ReplySettings
    scripts: tuple[Script, ...]


@dataclass(frozen=True)
class Config:
    """Loaded configuration.

    `by_name` maps normalised names to models.
    """

    path: Path
    by_name: Mapping[str, ConfiguredModel]

    @cached_property
    def models(self) -> tuple[Model, ...]:
        models = [configured.model for configured in self.by_name.values()]
        return tuple(models)

    def find(self, model: str) -> ConfiguredModel | None:
        return self.by_name.get(normalized_name(model))


def load(path: Path) -> Config:
    """Load a configuration. Raises ConfigError for the first invalid entry or recorded file."""
    return WatchedFile(path, partial(_read_valid, path)).current()


def reloading_config(path: Path) -> Callable[[], Config]:
    """Return a function that reloads a changed file and returns the last valid configuration.

    Raises ConfigError if the configuration is invalid now. The returned function logs errors
    instead.
    """
    watched = WatchedFile(path, partial(_read_valid, path))
    config = watched.current()
    problem = ""

    def current() -> Config:
        nonlocal config, problem
        try:
            config = watched.current()
            problem = ""
        except ConfigError as error:
            if str(error) != problem:
                problem = str(error)
                logger.error(
                    "configuration not reloaded, the last valid configuration remains in use: "
                    "error=%s",
                    problem,
                )
        return config

    return current


def validate_config(path: Path) -> list[str]:
    """Return the error messages for a configuration and its recorded files, each in one line.

    A configuration that cannot be read or parsed has only one.
    """
    watched = WatchedFile(path, partial(_read, path))
    try:
        _, problems = watched.current()
    except ConfigError as error:
        return [str(error)]
    messages = map(str, problems)
    return list(dict.fromkeys(messages))


@lru_cache(maxsize=1)
def packaged_config() -> Config:
    return load(PACKAGED)


def test_mode_config(*, all_models: bool) -> Config:
    """Return the packaged models with four characters per token, without `FAULT_MODELS` unless
    `all_models` is true.
    """
    packaged = packaged_config()
    by_name = {}
    for name, entry in packaged.by_name.items():
        if all_models or name not in FAULT_MODELS:
            model = replace(entry.model, chars_per_token=4)
            by_name[name] = replace(entry, model=model)
    return replace(packaged, by_name=by_name)


def normalized_name(model: str) -> str:
    """Return a model name in lower case, without the default registry, namespace and tag."""
    return (
        model.lower()
        .removeprefix("registry.ollama.ai/")
        .removeprefix("library/")
        .removesuffix(":latest")
    )


def _read_valid(path: Path, data: bytes) -> Config:
    """Parse a configuration. Raises ConfigError for the first invalid entry or recorded file."""
    config, problems = _read(path, data)
    if problems:
        raise problems[0]
    return config


def _read(path: Path, data: bytes) -> tuple[Config, list[ConfigError]]:
    """Return the valid models of a configuration, and the errors of its entries.

    Raises ConfigError if it cannot be parsed.
    """
    problems: list[ConfigError] = []
    document = parse(data, str(path))
    scripts = _all_scripts(document, problems)
    by_name: dict[str, ConfiguredModel] = {}
    for position, (name, script) in enumerate(scripts.items()):
        with _collected(problems):
            chain = _with_parents(script, scripts)
            configured = _configured_model(name, chain, position)
            earlier = by_name.setdefault(normalized_name(name), configured)
            if earlier is not configured:
                other = earlier.model.name
                expected = f"a name that differs from {other!r} in more than case or :latest"
                raise document.error_at_key(f"{expected}, found {name!r}", "models", name)
    return Config(path, by_name), problems


def _all_scripts(document: Document, problems: list[ConfigError]) -> dict[str, Script]:
    """Return the scripts of a configuration by the name of the model, included ones first."""
    top: dict[str, Any] = {}
    keys = document.validate(dict[str, Any], document.data)
    for key, value in keys.items():
        with _collected(problems):
            file = document.validate(entries.ConfigFile, {key: value})
            top[key] = getattr(file, key)
    own = {}
    for name, value in top.get("models", {}).items():
        own[name] = _script(name, value, document, problems)
    if "include" not in keys:
        return own
    return {**_packaged_scripts(without=own), **own}


def _packaged_scripts(without: Iterable[str]) -> dict[str, Script]:
    names = set(map(normalized_name, without))
    scripts = {}
    for name, entry in packaged_config().by_name.items():
        if name not in names:
            script = entry.scripts[0]
            scripts[script.name] = script
    return scripts


def _configured_model(name: str, scripts: tuple[Script, ...], position: int) -> ConfiguredModel:
    """Return the model with its own properties and those of its parents, which follow it in
    `scripts`.
    """
    properties: JsonObject = {}
    for script in reversed(scripts):
        properties.update(script.properties)
    stream = {}
    for key in STREAM:
        if key in properties:
            stream[key] = properties.pop(key)
    model = model_from_properties(name, properties, position)
    return ConfiguredModel(model, ReplySettings(**stream), scripts)


def model_from_properties(name: str, properties: Mapping[str, Any], position: int) -> Model:
    """Return a model with these fields of `Model`. The other fields have defaults.

    `position` is the number of models before this one in the configuration, where included models
    come first. The first model has the latest default modification time.
    """
    modified_at = LATEST_CHANGE - timedelta(minutes=position)
    fields: JsonObject = {
        "name": name,
        "modified_at": modified_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if "capabilities" not in properties:
        fields["least_context"] = MIN_CONTEXT  # default vision does not raise the minimum
    fields.update(properties)
    return replace(_UNDECLARED, **fields)


def _with_parents(script: Script, scripts: Mapping[str, Script]) -> tuple[Script, ...]:
    """Return a script, followed by its parents. Raises ConfigError for an unknown parent or a
    cycle.
    """
    chain = [script]
    last = script
    while last.parent:
        parent = scripts.get(last.parent)
        if parent is None or parent in chain:
            expected = "another model of this file, without a cycle, in _inherit, found"
            raise last.document.error_at_value(f"{expected} {last.parent!r}", *last.parent_path)
        chain.append(parent)
        last = parent
    return tuple(chain)


def _script(name: str, value: Any, document: Document, problems: list[ConfigError]) -> Script:
    """Return the script of a model with its valid entries. Add the errors to `problems`."""
    script = Script(name, document)
    path = ("models", name)
    with _collected(problems):
        items = document.validate(list[Any], value or [], *path)
        for index, item in enumerate(items):
            with _collected(problems):
                keys = document.validate(dict[str, Any], item, *path, index)
                for trigger, reply in keys.items():
                    place = (*path, index, trigger)
                    _add_entry(script, trigger, reply, place)
    return script


def _add_entry(script: Script, trigger: str, value: Any, path: Location) -> None:
    document = script.document
    match trigger:
        case "_inherit":
            script.parent = document.validate(str, value, *path)
            script.parent_path = path
        case "_model":
            entry = document.validate(entries.ModelEntry, value, *path)
            script.properties = {name: given for name, given in entry if given is not None}
        case "_turns":
            turns = document.validate(list[entries.TurnEntry], value, *path)
            for index, turn in enumerate(turns):
                replies = []
                for number, reply in enumerate(turn.replies):
                    place = (*path, index, "replies", number)
                    replies.append(_response(reply, document, place))
                script.turns.append((turn.user, replies))
        case "_default":
            script.default = _response(value, document, path)
        case _:
            response = _response(value, document, path)
            script.triggers[trigger] = response
            if response.match == "regex":
                _check_regex(trigger, document, path)


def _check_regex(trigger: str, document: Document, path: Location) -> None:
    try:
        re.compile(trigger)
    except (re.error, OverflowError) as error:
        expected = f"a regular expression, found {trigger!r} ({error})"
        raise document.error_at_key(expected, *path) from None


def _response(value: Any, document: Document, path: Location) -> Response:
    """Return a response. A text is a message. Raises ConfigError."""
    if isinstance(value, str) and not is_null(value):
        return entries.MessageResponse(type="message", content=str(value))
    mapping = document.validate(dict[str, Any], value, *path)
    kind = str(mapping.get("type"))
    schema = entries.RESPONSES.get(kind)
    if schema is None:
        types = ", ".join(entries.RESPONSES)
        raise document.error_at_value(f"a type: {types}", *path, "type")
    return document.validate(schema, value, *path)


@contextmanager
def _collected(problems: list[ConfigError]) -> Iterator[None]:
    """Add a ConfigError in the block to `problems` instead of raising it."""
    try:
        yield
    except ConfigError as error:
        problems.append(error)
