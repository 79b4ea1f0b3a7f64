"""Replaying a folder of recordings: a request that was recorded gets what was answered then.

In the other mode (streamed or not) the recorded reply is translated. What was not recorded is refused with what sets it
apart from the nearest recording, in the words of its provider, unless the configuration has models to answer it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from mochi_stub.answer import Answer, Request, Result, Routes, Stub
from mochi_stub.catalogue import Model
from mochi_stub.config import Config
from mochi_stub.library import Library
from mochi_stub.matching import OWN, Asked, asked, nearest
from mochi_stub.reading import declared
from mochi_stub.recorded import wire_of
from mochi_stub.recordings import recordings_below
from mochi_stub.reply import Failure, Reply
from mochi_stub.routing import route
from mochi_stub.verbatim import generation_of
from mochi_stub.wires import failure_answer

NOT_RECORDED = 404
_EMBEDDING = ("/embed", "/embeddings", ":embedContent", ":batchEmbedContents")


class Replay:
    """What is recorded in the folder of a configuration; None for a request means that its models shall answer."""

    def __init__(self, config: Callable[[], Config | None], routes: Routes) -> None:
        self.config = config
        self.routes = routes

    def __call__(self, stub: Stub, request: Request) -> Result | None:
        config = self.config()
        if config is None or config.recordings is None or request.path.startswith(OWN):
            return None
        wanted = asked(request.method, request.path, request.query_string.decode("latin-1"), request.body)
        known, problems = recordings_below(config.recordings, config.path)
        for one in known:
            if one.asked.stamp == wanted.stamp:
                return generation_of(one.frames, one.file.name)
        for one in known:
            if one.asked.stamp == wanted.in_other_mode.stamp:
                reply = replace(one.reply, rule=f"recording {one.file.name}, in the other mode")
                return self._told(stub, request, wanted, reply)
        if config.models:
            return None
        message = nearest(wanted, [(one.file.name, one.asked) for one in known])
        message = "; ".join([message, *problems])
        return self._told(stub, request, wanted, Reply([Failure(message, NOT_RECORDED)], rule="no recording"))

    def _told(self, stub: Stub, request: Request, wanted: Asked, reply: Reply) -> Result:
        """The reply in the words of the wire that was asked, by a model that can do everything."""
        if wire_of(request.path) is None and not request.path.endswith(_EMBEDDING):
            failure = next(part for part in reply.parts if isinstance(part, Failure))
            return failure_answer(request, failure)
        library = Library([_model(wanted.model)])
        handler = route(self.routes, request)
        one = replace(stub, library=library, resolve=lambda _: replace(reply, unasked=True))
        return handler if isinstance(handler, Answer) else handler(one, request)


@lru_cache(maxsize=256)
def _model(name: str) -> Model:
    return declared(name or "recorded", {}, 0)
