"""Every error that a client can receive: class, code, HTTP status and cause.

``SessionTaken`` and ``StorageUnavailable`` are special cases of their parents, with the same code and status.
"""

import json
from typing import Any, ClassVar


class MochiError(Exception):
    """Base of all errors. ``details`` is JSON and goes to the client with the message."""

    code: ClassVar[str]
    status: ClassVar[int]
    cause: ClassVar[str]
    """What has happened, for the reference page."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def body(self) -> bytes:
        """Return the body of the response, as JSON."""
        envelope = {"error": {"code": self.code, "message": self.message, "details": self.details}}
        return json.dumps(envelope, default=str).encode()


class SessionNotFound(MochiError):
    code, status, cause = "SESSION_NOT_FOUND", 404, "no such session"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"Session with ID {session_id!r} not found.", session_id=session_id)


class SessionBusy(MochiError):
    code, status, cause = "SESSION_BUSY", 409, "a turn is running on the session"

    def __init__(self, session_id: str, run_id: str) -> None:
        text = f"Session {session_id!r} is answering another message. Wait for it, or stop it."
        super().__init__(text, session_id=session_id, run_id=run_id)


class SessionConflict(MochiError):
    code, status, cause = "SESSION_CONFLICT", 409, "somebody else changed the session first"

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
    code, status, cause = "INVALID_MESSAGE_INDEX", 400, "no message there that can be edited, or forked from"

    def __init__(self, index: int | str, reason: str) -> None:
        super().__init__(f"Message {index} cannot be used here: {reason}.", index=index)


class BlobNotFound(MochiError):
    code, status, cause = "BLOB_NOT_FOUND", 404, "no message of the session has such an image"

    def __init__(self, sha256: str) -> None:
        super().__init__(f"There is no image {sha256!r} here.", sha256=sha256)


class EmptyHistory(MochiError):
    code, status, cause = "EMPTY_HISTORY", 400, "nothing to answer again"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"Session {session_id!r} has no user message to answer.", session_id=session_id)


class NothingToSummarize(MochiError):
    code, status, cause = "EMPTY_HISTORY", 400, "nothing to summarize"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"In session {session_id!r} nothing was said yet.", session_id=session_id)


class ContextOverflow(MochiError):
    code, status, cause = "CONTEXT_OVERFLOW", 422, "what must be sent does not fit into the model's window"

    def __init__(self, window: int | None, estimate: int) -> None:
        text = (
            "The message, with the tools and what belongs to it, is too long for the model's context window. "
            "Shorten it, enable fewer tools, or use a model with a longer context."
        )
        super().__init__(text, window=window, estimated_tokens=estimate)


class IdempotencyKeyReused(MochiError):
    code, status, cause = "IDEMPOTENCY_KEY_REUSED", 422, "the key stands for another message of the session"

    def __init__(self, key: str, run_id: str | None = None) -> None:
        text = f"The idempotency key {key!r} was used for another message of this session. Every message needs its own."
        super().__init__(text, idempotency_key=key, run_id=run_id)


class ModelNotFound(MochiError):
    code, status, cause = "MODEL_NOT_FOUND", 404, "Ollama does not have the model"

    def __init__(self, model: str) -> None:
        text = f"Model {model!r} is not available in Ollama as a chat model. `ollama pull {model}` gets it."
        super().__init__(text, model=model)


class OllamaUnreachable(MochiError):
    code, status, cause = "OLLAMA_UNREACHABLE", 502, "no connection to Ollama"

    def __init__(self, host: str, reason: str) -> None:
        text = f"Cannot reach Ollama at {host}: {reason}. Is it running? `ollama serve` starts it."
        super().__init__(text, ollama_host=host)


class OllamaError(MochiError):
    """``message`` is Ollama's own text where it sent one; ``upstream_status`` its HTTP status, if any."""

    code, status, cause = "OLLAMA_ERROR", 502, "Ollama answered with an error, or nonsense"


class ToolNotFound(MochiError):
    code, status, cause = "TOOL_NOT_FOUND", 404, "no such tool"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no tool named {name!r}.", tool_name=name)


class ToolExecutionFailed(MochiError):
    """Inside a turn only: a tool result that is sent to the model, not an answer of a route."""

    code, status, cause = "TOOL_EXECUTION_FAILED", 500, "a tool raised, took too long or got wrong arguments"


class ToolExecutionDenied(MochiError):
    """Inside a turn only: a tool result that is sent to the model, not an answer of a route."""

    code, status, cause = "TOOL_EXECUTION_DENIED", 403, "a call was not approved"


class ConfirmationTimeout(MochiError):
    code, status, cause = "TOOL_CONFIRMATION_TIMEOUT", 408, "nobody decided about a call in time"

    def __init__(self, confirmation_id: str) -> None:
        super().__init__("The call was denied, because nobody decided in time.", confirmation_id=confirmation_id)


class ConfirmationNotFound(MochiError):
    code, status, cause = "CONFIRMATION_NOT_FOUND", 404, "no such call waits for approval in the session"

    def __init__(self, confirmation_id: str) -> None:
        super().__init__(f"No call waits for {confirmation_id!r} here.", confirmation_id=confirmation_id)


class ConfirmationResolved(MochiError):
    code, status, cause = "CONFIRMATION_RESOLVED", 409, "the call was decided about before"

    def __init__(self, confirmation_id: str) -> None:
        super().__init__("The call was decided about before.", confirmation_id=confirmation_id)


class AgentNotFound(MochiError):
    code, status, cause = "AGENT_NOT_FOUND", 404, "no such agent"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no agent named {name!r}.", agent_name=name)


class AgentInvalid(MochiError):
    """``reason`` names the file that is wrong, and why."""

    code, status, cause = "AGENT_INVALID", 422, "the agent cannot be used as it is"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"Agent {name!r} cannot be used: {reason}", agent_name=name, reason=reason)


class PromptNotFound(MochiError):
    code, status, cause = "PROMPT_NOT_FOUND", 404, "no such system prompt"

    def __init__(self, filename: str | None) -> None:
        what = "The session has no system prompt." if filename is None else f"System prompt {filename!r} not found."
        super().__init__(what, filename=filename)


class PromptExists(MochiError):
    code, status, cause = "PROMPT_EXISTS", 409, "a prompt file of that name exists"

    def __init__(self, filename: str) -> None:
        super().__init__(f"System prompt {filename!r} exists already; PUT replaces it.", filename=filename)


class ValidationFailed(MochiError):
    code, status, cause = "VALIDATION_ERROR", 422, "the request is not what the route takes"


class InvalidComparison(MochiError):
    code, status, cause = "VALIDATION_ERROR", 400, "a comparison's request breaks one of its own rules"


class StorageFailed(MochiError):
    code, status, cause = "STORAGE_FAILED", 500, "the sessions cannot be read or written"

    def __init__(self, doing: str, error: OSError) -> None:
        reason = error.strerror or type(error).__name__  # never its text, which names files
        super().__init__(f"Cannot {doing}: {reason}.", errno=error.errno)


class StorageBusy(MochiError):
    """``reason`` is a sentence. Nothing was changed, so the request can be sent again."""

    code, status, cause = "STORAGE_BUSY", 503, "another process locks or is writing what is needed"

    def __init__(self, reason: str) -> None:
        text = f"{reason} Try again. MOCHI_STORAGE_WAIT_SECONDS sets how long a request waits for that."
        super().__init__(text, reason=reason)


class StorageUnavailable(StorageFailed):
    """The database did not answer; the same operation may succeed later."""


class ServerLost(MochiError):
    """Answer of a server to requests about a turn that another server runs, and the end of such streams."""

    code, status, cause = "SERVER_LOST", 504, "another server runs the turn, and is dead or does not answer"

    def __init__(self, session_id: str, *, is_unreachable: bool = False) -> None:
        unreachable = "cannot be reached by the other servers; its MOCHI_ADVERTISE_URL may be wrong (see the log)"
        problem = unreachable if is_unreachable else "does not answer"
        super().__init__(
            f"The server that runs the turn of session {session_id!r} {problem}. "
            "Load the session to see what is stored, and send the request again later.",
            session_id=session_id,
        )


class ShuttingDown(MochiError):
    code, status, cause = "SHUTTING_DOWN", 503, "the server takes no new turns and imports"

    def __init__(self) -> None:
        super().__init__("The server is shutting down and takes no new turns and no imports.")


class NotReady(MochiError):
    """``reason`` says what is wrong. It is shown to clients without a key."""

    code, status, cause = "NOT_READY", 503, "the server could not store what it is sent"

    def __init__(self, reason: str) -> None:
        super().__init__(f"The server is not ready. {reason}", reason=reason)


class Unauthorized(MochiError):
    code, status, cause = "UNAUTHORIZED", 401, "no API key, or a wrong one"

    def __init__(self, *, keys_exist: bool = True) -> None:
        text = "An API key is required: send `Authorization: Bearer <key>`."
        hint = " None is set: MOCHI_API_KEYS sets some, and create_app(insecure=True) serves without."
        super().__init__(text if keys_exist else text + hint)


class OriginForbidden(MochiError):
    code, status, cause = "ORIGIN_FORBIDDEN", 403, "a web page of a foreign origin asks"

    def __init__(self, origin: str) -> None:
        text = f"Web pages of {origin!r} may not use this server; MOCHI_ALLOWED_ORIGINS admits them."
        super().__init__(text, origin=origin)


class HostForbidden(MochiError):
    code, status, cause = "HOST_FORBIDDEN", 403, "the Host header names somebody else"

    def __init__(self, host: str) -> None:
        super().__init__(f"This server does not answer for the host {host!r}.", host=host)


class MalformedRequest(MochiError):
    code, status, cause = "BAD_REQUEST", 400, "the request's head is not HTTP, or can be read in two ways"


class BodyTooLarge(MochiError):
    code, status, cause = "BODY_TOO_LARGE", 413, "the request body exceeds the limit"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The request body exceeds {limit} bytes.", limit=limit)


class HeadersTooLarge(MochiError):
    code, status, cause = "HEADERS_TOO_LARGE", 431, "the request's head exceeds the limit"

    def __init__(self, limit: int) -> None:
        text = f"The path and headers of the request, or its trailers, exceed {limit} bytes. Send less of them."
        super().__init__(text, limit=limit)


class RequestTimedOut(MochiError):
    code, status, cause = "REQUEST_TIMED_OUT", 408, "the request stopped before it was whole"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Nothing more of the request came for {seconds:g} seconds.", seconds=seconds)


class RouteNotFound(MochiError):
    code, status, cause = "NOT_FOUND", 404, "no such path"

    def __init__(self, path: str) -> None:
        super().__init__(f"There is nothing at {path!r}.", path=path)


class MethodNotAllowed(MochiError):
    code, status, cause = "METHOD_NOT_ALLOWED", 405, "the path does not take the method"

    def __init__(self, method: str, path: str) -> None:
        super().__init__(f"{path!r} does not take {method}.", method=method, path=path)


class InternalError(MochiError):
    code, status, cause = "INTERNAL_ERROR", 500, "a defect of the server"

    def __init__(self) -> None:
        super().__init__("The server met an unexpected error; its log says more.")
