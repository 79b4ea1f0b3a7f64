"""Coroutines that begin without a task: most have nothing to wait for, and a task switch costs more than they do."""

from collections.abc import Coroutine, Generator
from typing import Any


class EagerCall:
    """A coroutine that has run up to where it first waits. Await it to run the rest in the current task.

    Errors are raised by the ``await``, not by the constructor. It must be awaited, or closed, unless ``is_done``.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.is_done = False
        """Whether the coroutine has returned: there is nothing to await."""
        self._coroutine = coroutine
        self._waits_for: Any = None
        self._error: Exception | None = None
        try:
            self._waits_for = coroutine.send(None)
        except StopIteration:
            self.is_done = True
        except Exception as error:
            self._error = error

    def close(self) -> None:
        """Abandon the rest."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, None]:
        if self._error is not None:
            raise self._error
        if not self.is_done:
            try:
                yield self._waits_for
            except BaseException:
                self._coroutine.close()
                raise
            self.is_done = True
            yield from self._coroutine.__await__()
