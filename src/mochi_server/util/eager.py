"""Eager execution of coroutines, which saves a task switch if a coroutine does not wait."""

from collections.abc import Coroutine, Generator
from typing import Any


class EagerCall:
    """Coroutine that starts at once and runs to its first suspension. Await the call to run the rest.

    The constructor raises no errors; ``await`` raises them. If ``is_done`` is false, await or close the call.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.is_done = False
        self._coroutine = coroutine
        self._awaited: Any = None
        self._error: Exception | None = None
        try:
            self._awaited = coroutine.send(None)
        except StopIteration:
            self.is_done = True
        except Exception as error:
            self._error = error

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, None]:
        if self._error is not None:
            raise self._error
        if not self.is_done:
            try:
                yield self._awaited
            except BaseException:
                self._coroutine.close()
                raise
            self.is_done = True
            yield from self._coroutine.__await__()
