"""Conversion of tool results to text, with limits, because a tool may return an endless
iterator.
"""

from collections import deque
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from pydantic_core import to_json, to_jsonable_python

# also limits how long an encoder, which does not release the GIL, can block the event loop
MAX_VALUES = 100_000
MAX_CHARACTERS = 10_000_000
MAX_LEVELS = 200

_LISTS = (list, tuple, set, frozenset, deque, range, Iterator, KeysView, ValuesView, ItemsView)
_CUT = (
    f"The rest of the result is left out: it has more than {MAX_VALUES:,} values or "
    f"{MAX_CHARACTERS:,} characters."
)
_T = TypeVar("_T")


class ConversionEnded(Exception):
    """The call of the tool has ended, so that its result is not needed anymore."""


def encodable(text: str) -> str:
    """Return ``text`` with "?" in place of lone surrogates."""
    return text.encode("utf-8", "replace").decode()


class ResultConversion:
    """Conversion of the result of one tool call.

    A structure that exceeds the limits is cut, and its text has a note.
    """

    def __init__(self) -> None:
        self._values = MAX_VALUES
        self._characters = MAX_CHARACTERS
        self._is_cut = False
        self._has_ended = False

    def end(self) -> None:
        """Stop the conversion, which may run in another thread, at the next value."""
        self._has_ended = True

    def text(self, value: object) -> str:
        """Return a result as text for a model.

        Structures become JSON. Text and bytes have no limit here. Raises ``ValueError`` for too
        many levels, ``ConversionEnded``, and any exception of user code.
        """
        if isinstance(value, str):
            return encodable(value)
        if value is None:
            return "Done; there is no result."
        if isinstance(value, bytes | bytearray):
            return _decoded(value)
        text = to_json(
            self._plain(value, MAX_LEVELS), fallback=str, inf_nan_mode="strings"
        ).decode()
        return f"{text}\n[... {_CUT} ...]" if self._is_cut else text

    def _plain(self, value: Any, levels: int) -> Any:
        """Return a copy of a value with lists in place of iterators, within the limits."""
        if isinstance(value, str):
            return self._within_limit(value)
        if isinstance(value, bytes | bytearray):
            return self._within_limit(_decoded(value))
        if value is None or isinstance(value, bool | int | float):
            return value
        if not levels:
            raise ValueError(
                f"the result is nested deeper than {MAX_LEVELS} levels, or contains itself"
            )
        if isinstance(value, dict):
            return self._of_mapping(value, levels)
        if isinstance(value, _LISTS):
            return [self._plain(item, levels - 1) for item in self._limited(value)]
        return self._of_object(value, levels)

    def _of_mapping(self, value: Mapping[Any, Any], levels: int) -> dict[object, Any]:
        return {
            self._key(key): self._plain(item, levels - 1)
            for key, item in self._limited(value.items())
        }

    def _of_object(self, value: Any, levels: int) -> Any:
        if _is_model(value):
            return self._plain(self._content(value), levels)
        if _is_dataclass(value):
            return self._plain(_fields(value), levels)
        if isinstance(value, Mapping):
            return self._of_mapping(value, levels)
        plain = to_jsonable_python(value, fallback=str, inf_nan_mode="strings")
        return self._within_limit(plain) if isinstance(plain, str) else plain

    def _limited(self, items: Iterable[_T]) -> Iterator[_T]:
        for item in items:
            if self._has_ended:
                raise ConversionEnded
            self._values -= 1
            if self._values < 0 or self._characters < 0:
                self._is_cut = True
                return
            yield item

    def _within_limit(self, text: str) -> str:
        """Return a text that can be encoded, cut to the characters that are left."""
        left = max(self._characters, 0)
        self._characters -= len(text)
        if len(text) > left:
            self._is_cut = True
            text = text[:left]
        return encodable(text)

    def _key(self, key: object) -> object:
        if isinstance(key, bytes):
            key = _decoded(key)
        return self._within_limit(key) if isinstance(key, str) else key

    def _content(self, model: Any) -> Any:
        """Return the content of a Pydantic model as the serializers of the model define it."""
        if self._is_finite(model):
            with suppress(UnicodeDecodeError):  # bytes that are not UTF-8
                return to_jsonable_python(model, fallback=str, inf_nan_mode="strings")
        # In the mode for JSON, the serializer would read an iterator to its end.
        return model.__pydantic_serializer__.to_python(model, mode="python", by_alias=True)

    def _is_finite(self, model: object) -> bool:
        """Return whether a model contains no iterator, and not too many values."""
        left = [model]
        count = self._values
        while left and count >= 0:
            value = left.pop()
            if isinstance(value, Iterator):
                return False
            count -= 1
            left.extend(_parts(value))
        return count >= 0


def _decoded(value: bytes | bytearray) -> str:
    return value.decode("utf-8", "replace")


def _is_model(value: object) -> bool:
    return hasattr(type(value), "__pydantic_serializer__")


def _is_dataclass(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _parts(value: Any) -> Iterable[Any]:
    """Return the values in a container or a model."""
    if _is_model(value):
        extra = getattr(value, "__pydantic_extra__", None) or {}
        return [*getattr(value, "__dict__", {}).values(), *extra.values()]
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return value
    if _is_dataclass(value):
        return _fields(value).values()
    return ()


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
