"""Configuration files: loading and validation."""

from __future__ import annotations

import logging
import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationInfo

from mochi_stub.config.entries import (
    RESPONSES,
    STREAM,
    Capability,
    MessageResponse,
    ModelEntry,
    ReplySettings,
    Response,
)
from mochi_stub.models import MIN_CONTEXT, Model
from mochi_stub.recording import recordings_below
from mochi_stub.yaml_file import ConfigError, Document, Entry, Scalar, WatchedFile, found, parse

logger = logging.getLogger("mochi_stub")

PACKAGED = Path(__file__).parent / "default.yaml"
LATEST_CHANGE = datetime(2026, 1, 15, tzinfo=timezone.utc)
_UNDECLARED = Model("", get_args(Capability)[:6], context_length=131072, embedding_length=768)


def _folder(text: Any, info: ValidationInfo) -> Path:
    folder = Path(info.context or "", str(text))
    if not folder.is_dir():
        raise ValueError(f"a folder of recordings, found none at {folder}")
    return folder


class ConfigFile(Entry):
    """Top level of a configuration."""

    models: dict[str, Any] = Field(default_factory=dict)
    include: Literal["default"] | None = None
    recordings: Annotated[Path, BeforeValidator(_folder)] | None = None


@dataclass
class Script:
    """Configuration entries of one model: responses by trigger, a default response, and the fields of `_model`."""

    name: str
    document: Document
    triggers: dict[str, Response] = field(default_factory=dict)
    default: Response | None = None
    parent: str = ""
    parent_path: tuple[str | int, ...] = ()
    properties: dict[str, Any] = field(default_factory=dict)

    def matching(self, message: str) -> Iterator[tuple[str, Response]]:
        """Yield the triggers that apply to a user message, with their responses, in the order of the file."""
        return (entry for entry in self.triggers.items() if entry[1].applies_to(entry[0], message))


@dataclass(frozen=True)
class ConfiguredModel:
    """Model with its default stream settings. `scripts` has the model's own script first, then those of its parents."""

    model: Model
    settings: ReplySettings
    scripts: tuple[Script, ...]


@dataclass(frozen=True)
class Config:
    """Loaded configuration. `by_name` maps normalised names to models. `recordings` is a folder of recorded replies."""

    path: Path
    by_name: Mapping[str, ConfiguredModel]
    recordings: Path | None = None

    @cached_property
    def models(self) -> tuple[Model, ...]:
        return tuple(configured.model for configured in self.by_name.values())

    def find(self, model: str) -> ConfiguredModel | None:
        """Return the model with this name, or None if it is not configured. Case is ignored."""
        return self.by_name.get(normalized_name(model))


def load(path: Path) -> Config:
    """Load a configuration. Raises ConfigError for the first invalid entry or recorded file."""
    return _watched(path).current()


def reloading_config(path: Path) -> Callable[[], Config]:
    """Return a function that reloads a changed file and returns the last valid configuration.

    Raises ConfigError if the configuration is invalid now. The returned function logs errors instead.
    """
    watched = _watched(path)
    config, logged = watched.current(), ""

    def current() -> Config:
        nonlocal config, logged
        try:
            config, problem = watched.current(), ""
        except ConfigError as error:
            problem = str(error)
        if problem and problem != logged:
            logger.error("configuration not reloaded, the last valid configuration remains in use: error=%s", problem)
        elif logged and not problem:
            logger.info("configuration reloaded")
        logged = problem
        return config

    return current


def validate_config(path: Path) -> list[str]:
    """Return the error messages for a configuration and its recorded files. Each message is one line."""
    try:
        config, problems = WatchedFile(path, partial(_read, path)).current()
    except ConfigError as error:
        return [str(error)]
    recordings = recordings_below(config.recordings, config.path)[1] if config.recordings else []
    return list(dict.fromkeys([*map(str, problems), *recordings]))


@lru_cache(maxsize=1)
def packaged_config() -> Config:
    return load(PACKAGED)


def _packaged_scripts(replaced: Iterable[str]) -> dict[str, Script]:
    """Return the entries of the packaged models, except for the models with a name in `replaced`."""
    names = set(map(normalized_name, replaced))
    scripts = [entry.scripts[0] for name, entry in packaged_config().by_name.items() if name not in names]
    return {script.name: script for script in scripts}


def normalized_name(model: str) -> str:
    """Return a model name in lower case, without the default registry, namespace and tag."""
    return model.lower().removeprefix("registry.ollama.ai/").removeprefix("library/").removesuffix(":latest")


def _watched(path: Path) -> WatchedFile[Config]:
    def read(data: bytes) -> Config:
        config, problems = _read(path, data)
        if problems:
            raise problems[0]
        return config

    return WatchedFile(path, read)


def _read(path: Path, data: bytes) -> tuple[Config, list[ConfigError]]:
    """Return the valid entries as a configuration, and the errors of the others. Raises ConfigError for bad YAML."""
    problems: list[ConfigError] = []
    document = parse(data, str(path))
    top: dict[str, Any] = {}
    keys = document.validate(dict[str, Any], document.data)
    for key, value in keys.items():
        with _collected(problems):
            entry = document.validate(ConfigFile, {key: value})
            top |= {name: getattr(entry, name) for name in entry.model_fields_set}
    own = {name: _script(name, value, document, problems) for name, value in top.get("models", {}).items()}
    scripts = {**(_packaged_scripts(own) if "include" in keys else {}), **own}
    by_name: dict[str, ConfiguredModel] = {}
    for position, (name, script) in enumerate(scripts.items()):
        with _collected(problems):
            chain = _with_parents(script, scripts)
            if normalized_name(name) in by_name:
                raise document.error(f"unique model names, found {name!r} again", "models", name)
            properties = dict(ChainMap(*(ancestor.properties for ancestor in chain)))
            settings = ReplySettings(**{key: properties.pop(key) for key in STREAM if key in properties})
            model = model_from_properties(name, properties, position)
            by_name[normalized_name(name)] = ConfiguredModel(model, settings, chain)
    return Config(path, by_name, top.get("recordings")), problems


def model_from_properties(name: str, properties: Mapping[str, Any], position: int) -> Model:
    """Return a model. The first model of the file (`position` 0) has the latest default modification time."""
    modified_at = (LATEST_CHANGE - timedelta(minutes=position)).strftime("%Y-%m-%dT%H:%M:%SZ")
    least_context = None if "capabilities" in properties else MIN_CONTEXT  # default vision does not raise the minimum
    default = {"name": name, "modified_at": modified_at, "least_context": least_context}
    return replace(_UNDECLARED, **{**default, **properties})


def _with_parents(script: Script, scripts: Mapping[str, Script]) -> tuple[Script, ...]:
    chain = [script]
    while parent := chain[-1].parent:
        if parent not in scripts:
            expected = f"a model of this file in _inherit, found {parent!r}"
            raise chain[-1].document.error(expected, *chain[-1].parent_path)
        if scripts[parent] in chain:
            names = " -> ".join([*(ancestor.name for ancestor in chain), parent])
            raise chain[-1].document.error(f"_inherit without a cycle, found {names}", *chain[-1].parent_path)
        chain.append(scripts[parent])
    return tuple(chain)


def _script(name: str, value: Any, document: Document, problems: list[ConfigError]) -> Script:
    script, path = Script(name, document), ("models", name)
    triggers: set[str] = set()
    with _collected(problems):
        if isinstance(value, Scalar) and value.value is None:
            return script
        for index, entry in enumerate(document.validate(list[Any], value, *path)):
            with _collected(problems):
                for trigger, reply in document.validate(dict[str, Any], entry, *path, index).items():
                    if trigger in triggers:
                        raise document.key_error(f"unique triggers, found {trigger!r} again", *path, index, trigger)
                    triggers.add(trigger)
                    _add_entry(script, trigger, reply, (*path, index, trigger))
    return script


def _add_entry(script: Script, trigger: str, value: Any, path: tuple[str | int, ...]) -> None:
    document = script.document
    if trigger == "_inherit":
        script.parent, script.parent_path = document.validate(str, value, *path), path
    elif trigger == "_model":
        script.properties = document.validate(ModelEntry, value, *path).properties
    elif trigger == "_default":
        script.default = _response(value, document, path)
        if "match" in script.default.model_fields_set:
            raise document.key_error("match only in the response of a trigger, found 'match'", *path, "match")
    else:
        script.triggers[trigger] = response = _response(value, document, path)
        if response.match == "regex":
            try:
                re.compile(trigger)
            except (re.error, OverflowError) as error:
                raise document.key_error(f"a regular expression, found {trigger!r} ({error})", *path) from None


def _response(value: Any, document: Document, path: tuple[str | int, ...]) -> Response:
    """Validate a response: a text, or a mapping with a type. Raises ConfigError."""
    if isinstance(value, str) and not (isinstance(value, Scalar) and value.value is None):
        return MessageResponse(type="message", content=str(value))
    if not isinstance(value, dict):
        raise document.error(f"a text or a mapping with a type, found {found(value)}", *path)
    schema = RESPONSES.get(str(value.get("type")))
    if schema is None:
        suffix = f"; found {found(value['type'])}" if "type" in value else ""
        raise document.error(f"a type: {', '.join(RESPONSES)}{suffix}", *path, "type")
    return document.validate(schema, value, *path)


@contextmanager
def _collected(problems: list[ConfigError]) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        problems.append(error)
