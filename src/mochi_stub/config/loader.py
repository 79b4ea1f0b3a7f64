"""Loading and validation of configuration files."""

from __future__ import annotations

import logging
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from mochi_stub.config import entry_readers
from mochi_stub.config.response_types import ReplySettings, Response
from mochi_stub.config.yaml_source import ConfigError, Item, Readers, WatchedFile, parse
from mochi_stub.models.catalogue import Model
from mochi_stub.recording.files import recordings_below

logger = logging.getLogger("mochi_stub")

PACKAGED = Path(__file__).parent / "default.yaml"


@dataclass
class Script:
    """Configuration entries of one model: responses by trigger, a default response, and the fields of `_model`."""

    name: str
    source: Item
    triggers: dict[str, Response] = field(default_factory=dict)
    default: Response | None = None
    parent: Item | None = None
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

    @cached_property
    def uses_recordings(self) -> bool:
        """Whether replies come from recorded files, which can change without a change of the configuration."""
        scripts = [configured.scripts[0] for configured in self.by_name.values()]
        responses = [response for script in scripts for response in script.triggers.values()]
        responses += [script.default for script in scripts if script.default]
        return self.recordings is not None or any(response.path for response in responses)

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
    root = parse(data, str(path))
    entries = root.mapping("the configuration as a mapping")
    top: dict[str, Any] = {}
    for key, item in entries.items():
        with _collected(problems):
            top |= replace(root, value={key: item}).fields(_TOP, "the configuration")
    own = {name: _script(name, item, problems) for name, item in top.get("models", {}).items()}
    scripts = {**(_packaged_scripts(own) if "include" in entries else {}), **own}
    by_name: dict[str, ConfiguredModel] = {}
    for position, (name, script) in enumerate(scripts.items()):
        with _collected(problems):
            chain = _with_parents(script, scripts)
            if normalized_name(name) in by_name:
                raise script.source.error(f"unique model names, found {name!r} again")
            properties = dict(ChainMap(*(ancestor.properties for ancestor in chain)))
            settings = entry_readers.pop_settings(properties)
            model = entry_readers.model_from_fields(name, properties, position)
            by_name[normalized_name(name)] = ConfiguredModel(model, settings, chain)
    return Config(path, by_name, top.get("recordings")), problems


def _with_parents(script: Script, scripts: Mapping[str, Script]) -> tuple[Script, ...]:
    chain = [script]
    while (parent := chain[-1].parent) is not None:
        if parent.text not in scripts:
            raise parent.error(f"a model of this file in _inherit, found {parent.text!r}")
        if scripts[parent.text] in chain:
            names = " -> ".join([*(ancestor.name for ancestor in chain), parent.text])
            raise parent.error(f"_inherit without a cycle, found {names}")
        chain.append(scripts[parent.text])
    return tuple(chain)


def _script(name: str, item: Item, problems: list[ConfigError]) -> Script:
    script = Script(name, item)
    triggers: set[str] = set()
    with _collected(problems):
        if not name or len(name) > 500:
            raise item.error("a model name of 1 to 500 characters")
        for entry in item.items("a list of triggers") if item.value is not None else ():
            with _collected(problems):
                for trigger, reply in entry.mapping('an entry like - "hello": "Hi there!"').items():
                    if trigger in triggers:
                        raise reply.key_error(f"unique triggers, found {trigger!r} again")
                    triggers.add(trigger)
                    _add_entry(script, trigger, reply)
    return script


def _add_entry(script: Script, trigger: str, item: Item) -> None:
    if trigger == "_inherit":
        item.string("the name of another model")
        script.parent = item
    elif trigger == "_model":
        script.properties = item.fields({**entry_readers.MODEL, **entry_readers.STREAM}, "_model")
    elif trigger == "_default":
        script.default = entry_readers.response(item)
    elif trigger.startswith("_") and (close := get_close_matches(trigger, ("_inherit", "_model", "_default"), 1, 0.8)):
        raise item.key_error(f"{close[0]}, found {trigger!r}")
    else:
        script.triggers[trigger] = entry_readers.triggered_response(trigger, item)


@contextmanager
def _collected(problems: list[ConfigError]) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        problems.append(error)


def _folder(item: Item) -> Path:
    folder = item.path("a folder of recordings")
    if not folder.is_dir():
        raise item.error(f"a folder of recordings, found none at {folder}")
    return folder


_TOP: Readers = {
    "models": lambda item: item.mapping("models as a mapping"),
    "include": lambda item: item.choice("default"),
    "recordings": _folder,
}
