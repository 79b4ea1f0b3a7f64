"""A configuration: models, their triggers, and what they answer, from a file of YAML.

    models:
      gpt-4:
        - "hello": "Hi there!"
        - _default: {type: echo}

This module reads and checks. Which trigger answers is decided in `resolve.py`, what it answers in `responses.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from mochi_stub.catalogue import Model
from mochi_stub.declared import declared, properties
from mochi_stub.document import ConfigError, Item, parse, read
from mochi_stub.inheritance import lineage
from mochi_stub.reading import manner, response
from mochi_stub.recordings import recordings_below
from mochi_stub.responses import NOTHING, File, Manner, Response

__all__ = ["Config", "ConfigError", "Script", "check", "load", "packaged"]

KEYS = ("_inherit", "_model", "_default")
"""The entries of a model that are no triggers."""
PACKAGED = Path(__file__).parent / "default.yaml"


@dataclass
class Script:
    """What one model answers: to the exact texts of `triggers`, and else. `place` is where it stands in the file."""

    name: str
    place: Item
    triggers: dict[str, Response] = field(default_factory=dict)
    default: Response | None = None
    parent: Item | None = None
    properties: dict[str, Any] = field(default_factory=dict)
    manner: Manner = NOTHING
    described: bool = False


@dataclass(frozen=True)
class Config:
    """What a file says. `lineages` has for every name the script of the model, then those that it inherits from."""

    path: Path
    models: tuple[Model, ...]
    lineages: Mapping[str, tuple[Script, ...]]
    recordings: Path | None = None

    @cached_property
    def declared(self) -> Mapping[str, Model]:
        return {model.name: model for model in self.models}

    @cached_property
    def is_whole(self) -> bool:
        """Whether nothing is answered from other files, which may change by themselves."""
        said = [one for chain in self.lineages.values() for one in (*chain[0].triggers.values(), chain[0].default)]
        return self.recordings is None and not any(isinstance(one, File) for one in said)

    def lineage(self, model: str) -> tuple[Script, ...]:
        """The scripts for a model's name, upper and lower case alike; none where it is not configured."""
        return self.lineages.get(model) or self.lineages.get(key(model), ())

    def model(self, name: str) -> Model:
        """The declared model. Raises KeyError where it is not configured."""
        return self.declared[self.lineage(name)[0].name]

    def chars_per_token(self, model: str) -> float:
        return self.model(model).chars_per_token if self.lineage(model) else 1.0

    def manner(self, model: str) -> Manner:
        """How the model streams where a response does not say."""
        found = NOTHING
        for script in self.lineage(model):
            found = found.over(script.manner)
        return found


def load(path: Path) -> Config:
    """The configuration in a file. Raises ConfigError, whose text is one line, `file:line: what was expected`."""
    return _sound(*_read(read(path), path))


def load_data(data: bytes, path: Path) -> Config:
    """The configuration in the bytes of the file at `path`. Raises ConfigError."""
    return _sound(*_read(parse(data, str(path)), path))


def _sound(config: Config, problems: list[ConfigError]) -> Config:
    if problems:
        raise problems[0]
    return config


def check(path: Path) -> list[str]:
    """Everything that is wrong with a configuration and the recorded files that it names, one line each."""
    try:
        config, problems = _read(read(path), path)
    except ConfigError as error:
        return [str(error)]
    return [*map(str, problems), *_recorded_problems(config)]


@lru_cache(maxsize=1)
def packaged() -> Config:
    """The configuration that comes with the package."""
    return load(PACKAGED)


def key(model: str) -> str:
    """What two ways to write a model's name have in common."""
    return model.lower().removeprefix("registry.ollama.ai/").removeprefix("library/").removesuffix(":latest")


def _read(item: Item, path: Path) -> tuple[Config, list[ConfigError]]:
    """The configuration as far as it can be read, and what is wrong with it. Raises ConfigError where nothing can."""
    problems: list[ConfigError] = []
    top = item.known(("models", "recordings"), "the configuration")
    folder = path.parent
    scripts: dict[str, Script] = {}
    for name, entries in top["models"].mapping("models as a mapping").items() if "models" in top else ():
        scripts[name] = _script(name, entries, folder, problems)
    lineages: dict[str, tuple[Script, ...]] = {}
    models = []
    for position, (name, script) in enumerate(scripts.items()):
        with _collected(problems):
            chain = lineage(script, scripts)
            if key(name) in lineages:
                raise script.place.error(f"every model once, found {name!r} again")
            lineages[key(name)] = lineages[name] = chain
            given = {field: value for one in reversed(chain) for field, value in one.properties.items()}
            models.append(declared(name, given, position))
    recordings = top["recordings"].string("a folder of recordings") if "recordings" in top else None
    if recordings is not None and not (folder / recordings).is_dir():
        problems.append(top["recordings"].error(f"a folder of recordings, found none at {folder / recordings}"))
    return Config(path, tuple(models), lineages, None if recordings is None else folder / recordings), problems


def _script(name: str, item: Item, folder: Path, problems: list[ConfigError]) -> Script:
    script = Script(name, item)
    with _collected(problems):
        if not name or len(name) > 500:
            raise item.error("a name for the model")
        for entry in item.items("a list of triggers") if item.value is not None else ():
            with _collected(problems):
                for trigger, said in entry.mapping('an entry like - "hello": "Hi there!"').items():
                    _enter(script, trigger, said, folder)
    return script


def _enter(script: Script, trigger: str, item: Item, folder: Path) -> None:
    """One entry of a model's list. Raises ConfigError."""
    if trigger == "_inherit":
        _once(script.parent, item, trigger)
        item.string("the name of another model")
        script.parent = item
    elif trigger == "_model":
        _once(script.described or None, item, trigger)
        script.properties, script.manner = properties(item), manner(item.mapping("a mapping"))
        script.described = True
    elif trigger == "_default":
        _once(script.default, item, trigger)
        script.default = response(item, folder)
    elif trigger.startswith("_") and (meant := get_close_matches(trigger, KEYS, 1, 0.8)):
        raise item.misnamed(f"{meant[0]}, found {trigger!r}")
    else:
        _once(script.triggers.get(trigger), item, trigger)
        script.triggers[trigger] = response(item, folder)


def _once(earlier: object, item: Item, trigger: str) -> None:
    if earlier is not None:
        raise item.misnamed(f"{trigger!r} once, found it again")


@contextmanager
def _collected(problems: list[ConfigError]) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        problems.append(error)


def _recorded_problems(config: Config) -> list[str]:
    below = recordings_below(config.recordings, config.path)[1] if config.recordings else []
    found: dict[str, None] = dict.fromkeys(below)
    for chain in config.lineages.values():
        for said in [*chain[0].triggers.values(), chain[0].default]:
            if isinstance(said, File) and (problem := said.problem) is not None:
                found[problem] = None
    return list(found)
