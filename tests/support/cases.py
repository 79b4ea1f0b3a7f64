"""Tests with a table of cases.

The cases share their fixtures, so they cost less than parametrized tests.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest

from mochi_stub import StubServer

Test = Callable[..., Any]
Values = dict[str, Any]


def cases(
    names: str | Sequence[str], table: Iterable[Any], ids: Any = None
) -> Callable[[Test], Test]:
    """Run a test once for each case. Takes the arguments of ``pytest.mark.parametrize``.

    The test fails after its last case, with the names of the failed cases and the first error. The
    journal of the stub is empty when a case begins. Use it only where no case changes what the test
    sees in another case.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    ids = ids if ids is None or callable(ids) else [*ids]
    named = dict(_named(arguments, row, ids, number) for number, row in enumerate(table))

    def decorate(test: Test) -> Test:
        @wraps(test)
        def run(**fixtures: Any) -> None:
            errors: dict[str, Exception] = {}
            for name, values in named.items():
                _clear_journals(fixtures)
                try:
                    test(**fixtures, **values)
                except Exception as error:
                    errors[name] = error
            _fail_if_any(errors)

        @wraps(test)
        async def run_async(**fixtures: Any) -> None:
            errors: dict[str, Exception] = {}
            for name, values in named.items():
                _clear_journals(fixtures)
                try:
                    await test(**fixtures, **values)
                except Exception as error:
                    errors[name] = error
            _fail_if_any(errors)

        wrapped: Test = run_async if inspect.iscoroutinefunction(test) else run
        signature = inspect.signature(test)
        fixtures = [each for name, each in signature.parameters.items() if name not in arguments]
        wrapped.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return wrapped

    return decorate


def _named(arguments: list[str], row: Any, ids: Any, number: int) -> tuple[str, Values]:
    """Return the name and the values of one case."""
    assert not isinstance(row, type(pytest.param())), "a case has no marks"
    values = [row] if len(arguments) == 1 else [*row]
    if callable(ids):
        name = "-".join(str(ids(value)) for value in values)
    else:
        name = str(ids[number]) if ids else "-".join(map(str, values))
    printable = name[:200].encode("ascii", "backslashreplace").decode()
    return f"{number}: {printable}", dict(zip(arguments, values, strict=True))


def _clear_journals(fixtures: Values) -> None:
    for fixture in fixtures.values():
        if isinstance(fixture, StubServer):
            fixture.clear_exchanges()


def _fail_if_any(errors: dict[str, Exception]) -> None:
    if errors:
        raise AssertionError(f"failed cases: {', '.join(errors)}") from next(iter(errors.values()))
