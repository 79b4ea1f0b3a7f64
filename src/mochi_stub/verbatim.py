"""A recorded reply, played as it was recorded: for requests on the wire and in the mode in which it was."""

from __future__ import annotations

import math
from dataclasses import replace

from mochi_stub.answer import Answer, Generation
from mochi_stub.chunks import Piece
from mochi_stub.recorded import wire_of
from mochi_stub.reply import Failure, Frames, Pace, Part, Pause, Reply, Text


def verbatim(generation: Generation, path: str, query: bytes) -> Generation:
    """The generation, with its recorded bytes where the request at `path` can have them."""
    frames = generation.reply.frames
    if frames is None or frames.stream is not generation.stream or frames.wire != wire_of(path):
        return generation
    if frames.wire == "gemini" and frames.stream and b"alt=sse" not in query:  # then it is a list that is streamed
        return generation
    if frames.wire == "gemini" and not frames.stream and frames.frames[0].startswith(b"["):  # it was one
        return generation
    return replay(frames, generation)


def replay(frames: Frames, generation: Generation) -> Generation:
    """The frames at their times, in place of what the generation would say."""
    played = replace(generation.reply, parts=_parts(frames), pace=Pace(characters_per_second=math.inf))
    return replace(generation, reply=played, encoder=FrameEncoder(frames), stream=frames.stream)


def generation_of(frames: Frames, name: str) -> Generation:
    """The frames alone; `name` is what the recording is called."""
    return replay(frames, Generation(Reply(rule=f"recording {name}"), FrameEncoder(frames), frames.stream))


class FrameEncoder:
    """Frames as they are. Frames that are no text are sent all the same."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        self.content_type = frames.content_type

    def chunk(self, pieces: list[Piece]) -> bytes:
        return "".join([piece.value for piece in pieces]).encode(errors="surrogateescape")

    def end(self) -> bytes:
        return b""

    def error(self, failure: Failure) -> bytes:
        return failure.message.encode()

    def refusal(self, failure: Failure, *, stream: bool) -> Answer:
        del stream
        return Answer(failure.status, failure.message.encode())

    def whole(self) -> Answer:
        frames = self.frames
        return Answer(frames.status, b"".join(frames.frames), frames.content_type, frames.headers)


def _parts(frames: Frames) -> list[Part]:
    """Waiting and sending in turn; a whole body is waited for and not sent in parts."""
    parts: list[Part] = []
    before = 0
    for frame, due in zip(frames.frames, frames.due, strict=True):
        if due > before:
            parts.append(Pause((due - before) / 1e9))
            before = due
        parts.append(Text((frame.decode(errors="surrogateescape") if frames.stream else "",)))
    return parts
