"""Every error a client can meet, once: class, code and HTTP status.

MochiError
├── SessionNotFound        SESSION_NOT_FOUND      404   no such session
├── SessionBusy            SESSION_BUSY           409   a turn is running on the session
├── SessionConflict        SESSION_CONFLICT       409   somebody else changed the session first
├── InvalidMessageIndex    INVALID_MESSAGE_INDEX  400   no message there that can be edited, or forked from
├── BlobNotFound           BLOB_NOT_FOUND         404   no message of the session has such an image
├── EmptyHistory           EMPTY_HISTORY          400   nothing to answer again
├── NothingToSummarize     EMPTY_HISTORY          400   nothing to summarize
├── ContextOverflow        CONTEXT_OVERFLOW       422   what must be sent does not fit into the model's window
├── IdempotencyKeyReused   IDEMPOTENCY_KEY_REUSED 422   the key stands for another message of the session
├── ModelNotFound          MODEL_NOT_FOUND        404   Ollama does not have the model
├── OllamaUnreachable      OLLAMA_UNREACHABLE     502   no connection to Ollama
├── OllamaError            OLLAMA_ERROR           502   Ollama answered with an error, or nonsense
├── ToolNotFound           TOOL_NOT_FOUND         404   no such tool
├── ToolExecutionFailed    TOOL_EXECUTION_FAILED  500   a tool raised, took too long or got wrong arguments
├── ToolExecutionDenied    TOOL_EXECUTION_DENIED  403   a call was not approved
├── ConfirmationTimeout    TOOL_CONFIRMATION_TIMEOUT 408 nobody decided about a call in time
├── ConfirmationNotFound   CONFIRMATION_NOT_FOUND 404   no such call waits for approval in the session
├── ConfirmationResolved   CONFIRMATION_RESOLVED  409   the call was decided about before
├── AgentNotFound          AGENT_NOT_FOUND        404   no such agent
├── AgentInvalid           AGENT_INVALID          422   the agent cannot be used as it is
├── PromptNotFound         PROMPT_NOT_FOUND       404   no such system prompt
├── PromptExists           PROMPT_EXISTS          409   a prompt file of that name exists
├── ValidationFailed       VALIDATION_ERROR       422   the request is not what the route takes
├── InvalidComparison      VALIDATION_ERROR       400   a comparison's request breaks one of its own rules
├── StorageFailed          STORAGE_FAILED         500   the sessions cannot be read or written
├── StorageBusy            STORAGE_BUSY           503   another process locks or is writing what is needed
├── ServerLost             SERVER_LOST            504   another server runs the turn, and is dead or does not answer
├── ShuttingDown           SHUTTING_DOWN          503   the server takes no new turns and imports
├── NotReady               NOT_READY              503   the server could not store what it is sent
├── Unauthorized           UNAUTHORIZED           401   no API key, or a wrong one
├── OriginForbidden        ORIGIN_FORBIDDEN       403   a web page of a foreign origin asks
├── HostForbidden          HOST_FORBIDDEN         403   the Host header names somebody else
├── MalformedRequest       BAD_REQUEST            400   the request's head is not HTTP, or can be read in two ways
├── BodyTooLarge           BODY_TOO_LARGE         413   the request body exceeds the limit
├── HeadersTooLarge        HEADERS_TOO_LARGE      431   the request's head exceeds the limit
├── RequestTimedOut        REQUEST_TIMED_OUT      408   the request stopped before it was whole
├── RouteNotFound          NOT_FOUND              404   no such path
├── MethodNotAllowed       METHOD_NOT_ALLOWED     405   the path does not take the method
└── InternalError          INTERNAL_ERROR         500   a defect of the server

``SessionTaken`` and ``StorageUnavailable`` are special cases of their parents, with the same code and status.
"""

import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, ClassVar


class MochiError(Exception):
    """Base of all errors. ``details`` is JSON and goes to the client with the message."""

    code: ClassVar[str]
    status: ClassVar[HTTPStatus]

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def body(self) -> bytes:
        """What every error is answered with, as JSON."""
        envelope = {"error": {"code": self.code, "message": self.message, "details": self.details}}
        return json.dumps(envelope, default=str).encode()


class SessionNotFound(MochiError):
    code, status = "SESSION_NOT_FOUND", HTTPStatus.NOT_FOUND

    def __init__(self, session_id: str) -> None:
        super().__init__(f"Session with ID {session_id!r} not found.", session_id=session_id)


class SessionBusy(MochiError):
    code, status = "SESSION_BUSY", HTTPStatus.CONFLICT

    def __init__(self, session_id: str, run_id: str) -> None:
        super().__init__(
            f"Session {session_id!r} is answering another message. Wait for it, or stop it.",
            session_id=session_id,
            run_id=run_id,
        )


class SessionConflict(MochiError):
    code, status = "SESSION_CONFLICT", HTTPStatus.CONFLICT

    def __init__(self, session_id: str) -> None:
        super().__init__(f"Session {session_id!r} was changed by somebody else meanwhile.", session_id=session_id)


class SessionTaken(SessionConflict):
    """Another server writes the session, so this one must not write it any more."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self.message = (
            f"Another server took session {session_id!r} over while this one had no connection to the database. "
            "The rest of the answer is not stored. Load the session, then send the message again."
        )


class InvalidMessageIndex(MochiError):
    code, status = "INVALID_MESSAGE_INDEX", HTTPStatus.BAD_REQUEST

    def __init__(self, index: int | str, reason: str) -> None:
        super().__init__(f"Message {index} cannot be used here: {reason}.", index=index)


class BlobNotFound(MochiError):
    code, status = "BLOB_NOT_FOUND", HTTPStatus.NOT_FOUND

    def __init__(self, sha256: str) -> None:
        super().__init__(f"There is no image {sha256!r} here.", sha256=sha256)


class EmptyHistory(MochiError):
    code, status = "EMPTY_HISTORY", HTTPStatus.BAD_REQUEST

    def __init__(self, session_id: str) -> None:
        super().__init__(f"Session {session_id!r} has no user message to answer.", session_id=session_id)


class NothingToSummarize(MochiError):
    code, status = "EMPTY_HISTORY", HTTPStatus.BAD_REQUEST

    def __init__(self, session_id: str) -> None:
        super().__init__(f"In session {session_id!r} nothing was said yet.", session_id=session_id)


class ContextOverflow(MochiError):
    code, status = "CONTEXT_OVERFLOW", HTTPStatus.UNPROCESSABLE_ENTITY

    def __init__(self, window: int | None, estimate: int) -> None:
        super().__init__(
            "The message, with the tools and what belongs to it, is too long for the model's context window. "
            "Shorten it, enable fewer tools, or use a model with a longer context.",
            window=window,
            estimated_tokens=estimate,
        )


class IdempotencyKeyReused(MochiError):
    code, status = "IDEMPOTENCY_KEY_REUSED", HTTPStatus.UNPROCESSABLE_ENTITY

    def __init__(self, key: str, run_id: str | None = None) -> None:
        super().__init__(
            f"The idempotency key {key!r} was used for another message of this session. Every message needs its own.",
            idempotency_key=key,
            run_id=run_id,
        )


class ModelNotFound(MochiError):
    code, status = "MODEL_NOT_FOUND", HTTPStatus.NOT_FOUND

    def __init__(self, model: str) -> None:
        super().__init__(
            f"Model {model!r} is not available in Ollama as a chat model. `ollama pull {model}` gets it.", model=model
        )


class OllamaUnreachable(MochiError):
    code, status = "OLLAMA_UNREACHABLE", HTTPStatus.BAD_GATEWAY

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(
            f"Cannot reach Ollama at {host}: {reason}. Is it running? `ollama serve` starts it.", ollama_host=host
        )


class OllamaError(MochiError):
    """``message`` is Ollama's own text where it sent one; ``upstream_status`` its HTTP status, if any."""

    code, status = "OLLAMA_ERROR", HTTPStatus.BAD_GATEWAY


class ToolNotFound(MochiError):
    code, status = "TOOL_NOT_FOUND", HTTPStatus.NOT_FOUND

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no tool named {name!r}.", tool_name=name)


class ToolExecutionFailed(MochiError):
    """Inside a turn only: a result that the model is told of, not an answer of a route."""

    code, status = "TOOL_EXECUTION_FAILED", HTTPStatus.INTERNAL_SERVER_ERROR


class ToolExecutionDenied(MochiError):
    """Inside a turn only: a result that the model is told of, not an answer of a route."""

    code, status = "TOOL_EXECUTION_DENIED", HTTPStatus.FORBIDDEN


class ConfirmationTimeout(MochiError):
    code, status = "TOOL_CONFIRMATION_TIMEOUT", HTTPStatus.REQUEST_TIMEOUT

    def __init__(self, confirmation_id: str) -> None:
        super().__init__("The call was denied, because nobody decided in time.", confirmation_id=confirmation_id)


class ConfirmationNotFound(MochiError):
    code, status = "CONFIRMATION_NOT_FOUND", HTTPStatus.NOT_FOUND

    def __init__(self, confirmation_id: str) -> None:
        super().__init__(f"No call waits for {confirmation_id!r} here.", confirmation_id=confirmation_id)


class ConfirmationResolved(MochiError):
    code, status = "CONFIRMATION_RESOLVED", HTTPStatus.CONFLICT

    def __init__(self, confirmation_id: str) -> None:
        super().__init__("The call was decided about before.", confirmation_id=confirmation_id)


class AgentNotFound(MochiError):
    code, status = "AGENT_NOT_FOUND", HTTPStatus.NOT_FOUND

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no agent named {name!r}.", agent_name=name)


class AgentInvalid(MochiError):
    """``reason`` names the file that is wrong, and why."""

    code, status = "AGENT_INVALID", HTTPStatus.UNPROCESSABLE_ENTITY

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"Agent {name!r} cannot be used: {reason}", agent_name=name, reason=reason)


class PromptNotFound(MochiError):
    code, status = "PROMPT_NOT_FOUND", HTTPStatus.NOT_FOUND

    def __init__(self, filename: str | None) -> None:
        what = "The session has no system prompt." if filename is None else f"System prompt {filename!r} not found."
        super().__init__(what, filename=filename)


class PromptExists(MochiError):
    code, status = "PROMPT_EXISTS", HTTPStatus.CONFLICT

    def __init__(self, filename: str) -> None:
        super().__init__(f"System prompt {filename!r} exists already; PUT replaces it.", filename=filename)


class ValidationFailed(MochiError):
    code, status = "VALIDATION_ERROR", HTTPStatus.UNPROCESSABLE_ENTITY


class InvalidComparison(MochiError):
    code, status = "VALIDATION_ERROR", HTTPStatus.BAD_REQUEST


class StorageFailed(MochiError):
    code, status = "STORAGE_FAILED", HTTPStatus.INTERNAL_SERVER_ERROR

    def __init__(self, doing: str, error: OSError) -> None:
        reason = error.strerror or type(error).__name__  # never its text, which names files
        super().__init__(f"Cannot {doing}: {reason}.", errno=error.errno)


class StorageBusy(MochiError):
    """``reason`` is a sentence. Nothing was changed, so the request can be sent again."""

    code, status = "STORAGE_BUSY", HTTPStatus.SERVICE_UNAVAILABLE

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason} Try again. MOCHI_STORAGE_WAIT_SECONDS sets how long a request waits for that.", reason=reason
        )


class StorageUnavailable(StorageFailed):
    """The database did not answer; the same operation may succeed later."""


class ServerLost(MochiError):
    """Answer of a server to requests about a turn that another server runs, and the end of such streams."""

    code, status = "SERVER_LOST", HTTPStatus.GATEWAY_TIMEOUT

    def __init__(self, session_id: str, *, is_unreachable: bool = False) -> None:
        problem = (
            "cannot be reached by the other servers; its MOCHI_ADVERTISE_URL may be wrong (see the log)"
            if is_unreachable
            else "does not answer"
        )
        super().__init__(
            f"The server that runs the turn of session {session_id!r} {problem}. "
            "Load the session to see what is stored, and send the request again later.",
            session_id=session_id,
        )


class ShuttingDown(MochiError):
    code, status = "SHUTTING_DOWN", HTTPStatus.SERVICE_UNAVAILABLE

    def __init__(self) -> None:
        super().__init__("The server is shutting down and takes no new turns and no imports.")


class NotReady(MochiError):
    """``reason`` says what is wrong, and who asks about it may see that."""

    code, status = "NOT_READY", HTTPStatus.SERVICE_UNAVAILABLE

    def __init__(self, reason: str) -> None:
        super().__init__(f"The server is not ready. {reason}", reason=reason)


class Unauthorized(MochiError):
    code, status = "UNAUTHORIZED", HTTPStatus.UNAUTHORIZED

    def __init__(self, *, keys_exist: bool = True) -> None:
        hint = (
            ""
            if keys_exist
            else " None is set: MOCHI_API_KEYS sets some, and create_app(insecure=True) serves without."
        )
        super().__init__(f"An API key is required: send `Authorization: Bearer <key>`.{hint}")


class OriginForbidden(MochiError):
    code, status = "ORIGIN_FORBIDDEN", HTTPStatus.FORBIDDEN

    def __init__(self, origin: str) -> None:
        super().__init__(
            f"Web pages of {origin!r} may not use this server; MOCHI_ALLOWED_ORIGINS admits them.", origin=origin
        )


class HostForbidden(MochiError):
    code, status = "HOST_FORBIDDEN", HTTPStatus.FORBIDDEN

    def __init__(self, host: str) -> None:
        super().__init__(f"This server does not answer for the host {host!r}.", host=host)


class MalformedRequest(MochiError):
    code, status = "BAD_REQUEST", HTTPStatus.BAD_REQUEST


class BodyTooLarge(MochiError):
    code, status = "BODY_TOO_LARGE", HTTPStatus.REQUEST_ENTITY_TOO_LARGE

    def __init__(self, limit: int) -> None:
        super().__init__(f"The request body exceeds {limit} bytes.", limit=limit)


class HeadersTooLarge(MochiError):
    code, status = "HEADERS_TOO_LARGE", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"The path and headers of the request, or its trailers, exceed {limit} bytes. Send less of them.",
            limit=limit,
        )


class RequestTimedOut(MochiError):
    code, status = "REQUEST_TIMED_OUT", HTTPStatus.REQUEST_TIMEOUT

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Nothing more of the request came for {seconds:g} seconds.", seconds=seconds)


class RouteNotFound(MochiError):
    code, status = "NOT_FOUND", HTTPStatus.NOT_FOUND

    def __init__(self, path: str) -> None:
        super().__init__(f"There is nothing at {path!r}.", path=path)


class MethodNotAllowed(MochiError):
    code, status = "METHOD_NOT_ALLOWED", HTTPStatus.METHOD_NOT_ALLOWED

    def __init__(self, method: str, path: str) -> None:
        super().__init__(f"{path!r} does not take {method}.", method=method, path=path)


class InternalError(MochiError):
    code, status = "INTERNAL_ERROR", HTTPStatus.INTERNAL_SERVER_ERROR

    def __init__(self) -> None:
        super().__init__("The server met an unexpected error; its log says more.")


def all_errors() -> Iterator[type[MochiError]]:
    """Every error class, in the order of this page."""
    yield from MochiError.__subclasses__()
