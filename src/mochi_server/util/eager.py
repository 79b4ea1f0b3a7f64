"""Eager execution of coroutines, because a task switch costs more than a coroutine that does not wait."""

from collections.abc import Coroutine, Generator
from typing import Any


class EagerCall:
    """Coroutine that has run to its first suspension. Await it to run the rest in the current task.

    Errors are raised by ``await``, not by the constructor. Await or close the call unless ``is_done``.
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
