"""All errors that a client can receive.

Each class has an error code, an HTTP status and a description of the cause, or inherits them from
another error.
"""

import json
from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any, ClassVar, Literal

from mochi_server.constants import FORMAT_VERSION, OLLAMA_SETTING
from mochi_server.util.text import join_names, nearest


class MochiError(Exception):
    """Base class of all errors.

    The client receives the message and ``details``, which is a JSON object.
    """

    code: ClassVar[str]
    status: ClassVar[int]
    cause: ClassVar[str]
    """Description of the error for the reference page, as a sentence."""
    template: ClassVar[str] = ""
    """Format of the message. If it is empty, the argument of the constructor is the message."""
    fields: ClassVar[tuple[str, ...]] = ()
    """Names of the details, in the order of the arguments.

    By default they are the names in ``template``.
    """

    def __init_subclass__(cls) -> None:
        if "fields" not in vars(cls):
            placeholders = [name for _, name, _, _ in Formatter().parse(cls.template)]
            cls.fields = tuple(dict.fromkeys(filter(None, placeholders)))

    def __init__(self, *values: Any, **details: Any) -> None:
        """Without a ``template``, the only value is the message.

        With one, ``values`` are the details, in the order of ``fields``. Other ``details`` are
        ignored.
        """
        self.details = details
        if self.template:
            self.details = dict(zip(self.fields, values, strict=True))
            self.message: str = self.template.format(**self.details)
        else:
            (self.message,) = values
        super().__init__(self.message)

    @classmethod
    def restored(cls, message: str, details: dict[str, Any] | None = None) -> "MochiError":
        """Return an error of this class with a message that was stored, and with ``details``.

        It lacks the attributes that subclasses set in their constructors.
        """
        error = cls.__new__(cls)
        error.message = message
        error.details = details or {}
        Exception.__init__(error, message)
        return error

    def with_advice(self, advice: str) -> "MochiError":
        """Return an error of this class with the same details, whose message ends with ``advice``.

        It lacks the attributes that subclasses set in their constructors.
        """
        sentence = self.message.rstrip(".")
        return self.restored(f"{sentence}. {advice}", self.details)

    @property
    def retry_after(self) -> int | None:
        """Time in seconds after which the client can repeat the request, or None if it is
        unknown.
        """
        return self.details.get("retry_after")

    def body(self) -> bytes:
        """Return the response body as JSON."""
        error = {"code": self.code, "message": self.message, "details": self.details}
        return json.dumps({"error": error}, default=str).encode()


class SessionNotFound(MochiError):
    code = "SESSION_NOT_FOUND"
    status = 404
    cause = "The session does not exist."
    template = "Session with ID {session_id!r} not found. GET /api/v1/sessions lists the sessions."


class SessionDamaged(SessionNotFound):
    """The rows of the session in the database are damaged."""

    template = (
        "The data of session {session_id!r} in the database is damaged. Restore it from a "
        "backup, or delete the session with DELETE /api/v1/sessions/{session_id}."
    )


class AgentChatNotFound(SessionNotFound):
    """The session does not exist in the directory of agent sessions."""

    template = (
        "Session with ID {session_id!r} not found. GET /api/v1/agents/chats lists the sessions "
        "of agents."
    )


class SessionBusy(MochiError):
    code = "SESSION_BUSY"
    status = 409
    cause = "Another turn is running on the session."
    template = (
        "Session {session_id!r} is busy: a turn is running. Wait, or use POST "
        "/api/v1/chat/{session_id}/stop."
    )
    fields = ("session_id", "run_id")

    @classmethod
    def waiting(
        cls, session_id: str, run_id: str, confirmations: Sequence[dict[str, Any]]
    ) -> "SessionBusy":
        """Return the error for a session whose turn waits for approval, or is about to continue."""
        error = cls(session_id, run_id)
        if not confirmations:  # the turn is about to continue
            return error
        error.details["confirmations"] = list(confirmations)
        error.message = (
            f"Session {session_id!r} is busy: its turn waits for the approval of a tool call. "
            f"Decide with POST /api/v1/chat/{session_id}/confirm-tool, or stop the turn with POST "
            f"/api/v1/chat/{session_id}/stop."
        )
        return error


class AgentChatBusy(SessionBusy):
    """A turn runs in the session of an agent."""

    template = "Session {session_id!r} is busy: a turn of its agent is running. Wait until it ends."
    fields = ("session_id", "run_id")

    @classmethod
    def called_by(cls, session_id: str, run_id: str, caller_id: str) -> "AgentChatBusy":
        """Return the error for a session of an agent that the turn of another session has called.

        ``caller_id`` is the ID of the other session.
        """
        error = cls(session_id, run_id)
        error.message = (
            f"Session {session_id!r} is busy: a turn of session {caller_id!r} has called its "
            f"agent. Wait, or use POST /api/v1/chat/{caller_id}/stop."
        )
        return error


class SessionConflict(MochiError):
    code = "SESSION_CONFLICT"
    status = 409
    cause = "Another request changed the session first."
    template = (
        "Another request changed session {session_id!r} meanwhile. Load the session, then try "
        "again."
    )


class SessionTaken(SessionConflict):
    """Another server owns the session now, so this server must not write it."""

    template = (
        "Another server took over session {session_id!r} while this server had no connection to "
        "the database. The rest of the answer is not stored. Load the session, then send the "
        "message again."
    )


class InvalidMessageIndex(MochiError):
    code = "INVALID_MESSAGE_INDEX"
    status = 400
    cause = "The message does not exist or cannot be edited or forked from."

    def __init__(self, index: int | str, reason: str) -> None:
        super().__init__(f"Message {index} cannot be used: {reason}.", index=index)


class SessionTooNew(MochiError):
    code = "SESSION_TOO_NEW"
    status = 409
    cause = "A later version of the server wrote the session file."
    template = (
        "The file of session {session_id!r} has format version {version}, and this server reads "
        f"versions up to {FORMAT_VERSION}. Update mochi-server."
    )


class BlobNotFound(MochiError):
    code = "BLOB_NOT_FOUND"
    status = 404
    cause = "No message of the session has this image or file."
    template = "No message of this session has the image or file {sha256!r}."


class ResponseNotFound(MochiError):
    code = "RESPONSE_NOT_FOUND"
    status = 404
    cause = "The response does not exist, or the server no longer has it."
    template = (
        "Response {response_id!r} not found. Without a session, the server keeps responses for "
        "an hour."
    )


class EmptyHistory(MochiError):
    code = "EMPTY_HISTORY"
    status = 400
    cause = "The session has no user message to answer again."
    template = "Session {session_id!r} has no user message to answer. Send a `message`."


class NothingToSummarize(MochiError):
    code = "EMPTY_HISTORY"
    status = 400
    cause = "The session has no messages to summarize."
    template = "Session {session_id!r} has no messages to summarize."


MANUAL_WINDOW_ADVICE = (
    "To enlarge the window, PATCH the session's `context_window` with a larger `current_window`, "
    "or with null to remove the manual size."
)


class ContextOverflow(MochiError):
    code = "CONTEXT_OVERFLOW"
    status = 422
    cause = "The prompt does not fit into the model's context window."

    def __init__(self, window: int | None, estimate: int, *, is_manual: bool = False) -> None:
        """``is_manual`` states whether a manual size is the limit, not the model."""
        name = "the model's context window"
        advice = "Shorten the message, enable fewer tools, or use a model with a longer context."
        if is_manual:
            name = "the session's manual context window"
            advice = MANUAL_WINDOW_ADVICE
        size = f" of {window} tokens" if window else ""
        problem = f"The prompt of about {estimate} tokens does not fit into {name}{size}."
        super().__init__(f"{problem} {advice}", window=window, estimated_tokens=estimate)


class IdempotencyKeyReused(MochiError):
    code = "IDEMPOTENCY_KEY_REUSED"
    status = 422
    cause = "Another message of the session has this idempotency key."
    template = (
        "The idempotency key {idempotency_key!r} was used for another message of this session. "
        "Use a new key."
    )
    fields = ("idempotency_key", "run_id")


class ModelNotFound(MochiError):
    code = "MODEL_NOT_FOUND"
    status = 404
    cause = "Ollama does not have the model."

    def __init__(
        self,
        model: str,
        *,
        kind: Literal["chat", "embedding"] = "chat",
        models: Sequence[str] = (),
        is_other_kind: bool = False,
        can_install: bool = True,
    ) -> None:
        """``models`` are the available models of the ``kind``.

        ``is_other_kind``: ``model`` is installed, but it can only embed, not chat. For the
        ``kind`` "embedding", it cannot embed.

        If ``can_install`` is true and ``is_other_kind`` is false, the message contains the command
        to install the model.
        """
        # Ollama may have removed the model after the list was read.
        models = [name for name in models if name != model]
        similar = nearest(model, models)
        sentences = [f"There is no {kind} model {model!r}."]
        if is_other_kind and kind == "embedding":
            sentences = [f"Model {model!r} cannot compute embeddings."]
        elif is_other_kind:
            sentences = [f"Model {model!r} is an embedding model and cannot chat."]
        elif similar:
            sentences.append(f"Did you mean {similar!r}?")
        if models:
            sentences.append(f"Choose one of the {kind} models: {join_names(models)}.")
        if can_install and not is_other_kind:
            sentences.append(f"To install {model!r}, run `ollama pull {model}`.")
        super().__init__(" ".join(sentences), model=model, **{f"{kind}_models": models})
        self.models = models
        self.is_other_kind = is_other_kind
        self._options: dict[str, Any] = {
            "kind": kind,
            "is_other_kind": is_other_kind,
            "can_install": can_install,
        }

    def with_models(self, models: Sequence[str]) -> "ModelNotFound":
        """Return a copy of this error with other available models."""
        return type(self)(self.details["model"], models=models, **self._options)

    def on_pinned_host(self, host: str, others: Sequence[str]) -> "ModelNotFound":
        """Return this error for a session that is pinned to ``host``, while ``others`` have the
        model.
        """
        error = self.with_models(self.models)
        error.message = (
            f"The session is pinned to the Ollama host {host}, which does not have the chat model "
            f"{error.details['model']!r}. Set the session's `ollama_host` to null, or to a host "
            f"that has it: {join_names(others)}."
        )
        return error

    @classmethod
    def on_hosts(cls, errors: "Mapping[str, ModelNotFound]") -> "ModelNotFound":
        """Return one error for the errors of several hosts, by name.

        It has their models, and their names unless one of them has the model only for embeddings.
        """
        models: dict[str, None] = {}
        for error in errors.values():
            models |= dict.fromkeys(error.models)
        best = max(errors.values(), key=lambda error: error.is_other_kind)
        hosts = list(errors)
        joined = cls(best.details["model"], models=list(models), **best._options)
        if best.is_other_kind:
            return joined
        joined.message += f" No host has it. Install it on one of these hosts: {join_names(hosts)}."
        joined.details["hosts"] = hosts
        return joined


class OllamaUnreachable(MochiError):
    code = "OLLAMA_UNREACHABLE"
    status = 502
    cause = "The connection to Ollama failed."

    def __init__(self, host: str, reason: str, setting: str = OLLAMA_SETTING) -> None:
        """``setting`` is the environment variable that contains the address of the host."""
        text = (
            f"Cannot reach Ollama at {host}: {reason}. Start it with `ollama serve`, or correct "
            f"{setting}."
        )
        super().__init__(text, ollama_host=host)


class HostsUnreachable(OllamaUnreachable):
    def __init__(self, text: str, **details: Any) -> None:
        MochiError.__init__(self, text, **details)


class OllamaError(MochiError):
    """Ollama failed.

    ``message`` contains Ollama's error text, and ``upstream_status`` is its HTTP status, if any.
    """

    code = "OLLAMA_ERROR"
    status = 502
    cause = "Ollama returned an error or an invalid response."
    upstream_text: str = ""
    """Error text as Ollama sent it.

    No response contains it, because it may be internal text of a model runner.
    """
    is_reported: bool = False
    """Whether Ollama itself reported the error, in its JSON format, and no proxy in front of it."""


class OllamaTimeout(OllamaError):
    """Ollama sent no data before a timeout."""


class OllamaBusy(OllamaError):
    """Ollama refused a request because Ollama has too many requests.

    ``upstream_status`` is 429 or 503.
    """

    code = "OLLAMA_BUSY"
    status = 503
    cause = "Ollama has too many requests."

    def __init__(self, reason: str, upstream_status: int = 503, retry_after: int = 2) -> None:
        delay = "1 second" if retry_after == 1 else f"{retry_after} seconds"
        reason = reason.rstrip(".")
        text = f"Ollama is busy: {reason}. Try again in {delay}."
        super().__init__(text, upstream_status=upstream_status, retry_after=retry_after)


class ToolNotFound(MochiError):
    code = "TOOL_NOT_FOUND"
    status = 404
    cause = "The tool does not exist."
    template = "There is no tool named {tool_name!r}. GET /api/v1/tools lists the tools."


class McpServerNotFound(MochiError):
    code = "MCP_SERVER_NOT_FOUND"
    status = 404
    cause = "The MCP server does not exist."
    template = (
        "There is no MCP server named {name!r} in mcp.json. GET /api/v1/mcp/servers lists the MCP "
        "servers."
    )


class McpAuthorizationUnavailable(MochiError):
    code = "MCP_AUTHORIZATION_UNAVAILABLE"
    status = 409
    cause = "The MCP server is configured without authorization by a user."
    template = "No user can authorize the MCP server {name!r}: {reason}."


class McpAuthorizationFailed(MochiError):
    code = "MCP_AUTHORIZATION_FAILED"
    status = 502
    cause = "The MCP server or its authorization server refused, or sent invalid data."
    template = "The authorization at the MCP server {name!r} failed: {reason}."


class ToolNotCalled(MochiError):
    code = "TOOL_NOT_CALLED"
    status = 502
    cause = "The model called no tool, although the request requires a call."

    def __init__(self, model: str, *, is_cut: bool = False) -> None:
        hint = 'Use another model, or `tool_choice: "auto"`.'
        if is_cut:
            hint = "Raise the token limit of the answer."
        text = f"Model {model!r} called no tool, although `tool_choice` requires a call. {hint}"
        super().__init__(text, model=model)


class ToolsNotSupported(MochiError):
    code = "TOOLS_NOT_SUPPORTED"
    status = 422
    cause = "Ollama lists the model with tools, and the model refuses them."
    template = (
        "Model {model!r} does not support tools, although Ollama lists it with this capability. "
        "Send the message without tools, or use another model."
    )


class ImageNotReadable(MochiError):
    code = "IMAGE_NOT_READABLE"
    status = 422
    cause = "Ollama cannot decode an image of the message. Later prompts omit the image."
    template = (
        "Ollama cannot decode an image of this message for model {model!r}. Later prompts omit the "
        "image. Edit the message to send another image, for example as PNG or JPEG."
    )


class FormatNotMet(MochiError):
    """No answer of the model fits the schema in ``format``. ``text`` is the last answer."""

    code = "FORMAT_NOT_MET"
    status = 502
    cause = "The answer does not fit the JSON schema of the request."

    def __init__(self, model: str, problem: str, text: str) -> None:
        advice = "Use another model, or a simpler schema."
        problem = (
            f"Model {model!r} returned no JSON that fits the schema, also after a repair "
            f"request: {problem}."
        )
        super().__init__(f"{problem} {advice} Its last answer: {text}", model=model, text=text)


class ToolExecutionFailed(MochiError):
    """The model receives this error as the tool result; no route returns the error."""

    code = "TOOL_EXECUTION_FAILED"
    status = 500
    cause = "The tool failed, timed out or got invalid arguments."


class ToolExecutionDenied(MochiError):
    """A tool call was denied.

    The model receives this error as the tool result; no route returns the error.
    """

    code = "TOOL_EXECUTION_DENIED"
    status = 403
    cause = "The tool call was not approved."


class ConfirmationTimeout(MochiError):
    code = "TOOL_CONFIRMATION_TIMEOUT"
    status = 408
    cause = "The approval timed out, and the tool call was denied."
    template = (
        "The tool call was denied: no decision arrived within "
        "MOCHI_TOOL_CONFIRMATION_TIMEOUT_SECONDS."
    )
    fields = ("confirmation_id",)


class ConfirmationNotFound(MochiError):
    code = "CONFIRMATION_NOT_FOUND"
    status = 404
    cause = "No tool call of the session has this confirmation ID."
    template = (
        "This session has no confirmation {confirmation_id!r}. "
        "GET /api/v1/chat/{{session_id}}/confirmations lists the calls that wait for approval."
    )


class ConfirmationResolved(MochiError):
    code = "CONFIRMATION_RESOLVED"
    status = 409
    cause = "The tool call was already decided."
    template = "This tool call was already decided."
    fields = ("confirmation_id",)


class ConfirmationStale(MochiError):
    code = "CONFIRMATION_STALE"
    status = 409
    cause = "The tool changed after the approval of its call was requested."
    template = (
        "The tool changed after the approval was requested, and the call did not run. The server "
        "requests the approval again: read GET /api/v1/chat/{{session_id}}/confirmations, and "
        "decide on the new confirmation ID."
    )
    fields = ("confirmation_id",)


class AgentNotFound(MochiError):
    code = "AGENT_NOT_FOUND"
    status = 404
    cause = "The agent does not exist."
    template = "There is no agent named {agent_name!r}. GET /api/v1/agents lists the agents."


class AgentInvalid(MochiError):
    """The agent cannot be used. ``reason`` names the invalid file and the problem."""

    code = "AGENT_INVALID"
    status = 422
    cause = "The files of the agent are incomplete or invalid."
    template = "Agent {agent_name!r} cannot be used: {reason}"


class VersionNotFound(MochiError):
    code = "VERSION_NOT_FOUND"
    status = 404
    cause = "The history of the session has no place with this version."
    template = (
        "There is no version {version_id!r} at a message of the history. "
        "List the versions with GET …/versions?message_id=."
    )


class PromptNotFound(MochiError):
    code = "PROMPT_NOT_FOUND"
    status = 404
    cause = "The system prompt does not exist."

    def __init__(self, filename: str | None) -> None:
        text = (
            f"System prompt {filename!r} not found. GET /api/v1/system-prompts lists the prompt "
            "files."
        )
        super().__init__(
            "The session has no system prompt." if filename is None else text, filename=filename
        )


class PromptExists(MochiError):
    code = "PROMPT_EXISTS"
    status = 409
    cause = "A prompt file with this name exists."
    template = (
        "System prompt {filename!r} already exists. Replace it with PUT, or choose another name."
    )


class ValidationFailed(MochiError):
    code = "VALIDATION_ERROR"
    status = 422
    cause = "The request is invalid. The message names the field."

    @classmethod
    def at(cls, location: str | Sequence[str | int], problem: str) -> "ValidationFailed":
        """Return the error for an invalid value at ``location``: the name of a field, or a path in
        the request body.
        """
        path = [location] if isinstance(location, str) else location
        name = ".".join(map(str, path))
        error = {"loc": ["body", *path], "msg": problem, "type": "value_error"}
        return cls(f"{name}: {problem}", errors=[error])


class InvalidComparison(MochiError):
    code = "VALIDATION_ERROR"
    status = 400
    cause = "The request of a comparison is invalid."


class StorageFailed(MochiError):
    code = "STORAGE_FAILED"
    status = 500
    cause = "The server cannot read or write the sessions."

    def __init__(self, operation: str, error: OSError) -> None:
        # the text of the error may contain file names
        reason = error.strerror or type(error).__name__
        super().__init__(f"Cannot {operation}: {reason}.", errno=error.errno)


class StorageBusy(MochiError):
    """The session files are in use. Nothing was changed, so the client can repeat the request."""

    code = "STORAGE_BUSY"
    status = 503
    cause = "Another process uses the session files."
    template = "{reason}"


class DirectoryInUse(StorageBusy):
    """Another process has locked a sessions directory.

    ``host`` is its machine, or empty if it is this machine.
    """

    def __init__(self, directory: str, process_id: str, host: str) -> None:
        place = f" on the machine {host}" if host else ""
        advice = (
            f" If that machine no longer runs, delete the file .lock in {directory} and try again."
            if host
            else ""
        )
        super().__init__(
            f"Process {process_id or '(unknown)'}{place} already uses the sessions in "
            f"{directory}: stop that process, send requests to it with the Python client, select "
            "another directory with MOCHI_DATA_DIR, or store the sessions in PostgreSQL with "
            f"MOCHI_STORE_URL.{advice}"
        )


class StorageUnavailable(StorageFailed):
    """The database did not respond. The same operation may succeed later."""


class ServerLost(MochiError):
    """The server that runs a turn cannot be reached.

    Other servers return this error and end the turn's streams.
    """

    code = "SERVER_LOST"
    status = 504
    cause = "The server that runs the turn does not respond."

    def __init__(self, session_id: str, *, is_unreachable: bool = False, starts: int = 1) -> None:
        """``starts`` is how often a server has started the turn. Each died, or was stopped, before
        the end of the turn.
        """
        unreachable = "cannot be reached. Check its MOCHI_ADVERTISE_URL and the log"
        problem = f"session {session_id!r} {unreachable if is_unreachable else 'does not respond'}"
        advice = "Load the session to see the stored messages. Send the request again later."
        tried = (
            f"The turn was started {starts} times, and its server stopped or died each time. "
            if starts > 1
            else ""
        )
        super().__init__(
            f"The server that runs the turn of {problem}. {tried}{advice}", session_id=session_id
        )


class ServerVersionsDiffer(MochiError):
    code = "SERVER_VERSIONS_DIFFER"
    status = 503
    cause = "Two servers of one database have versions that cannot forward requests to each other."
    template = (
        "The server that must answer this request cannot read it, because another server of the "
        "database has a later version. Send it again when all servers have the same version."
    )


class ShuttingDown(MochiError):
    code = "SHUTTING_DOWN"
    status = 503
    cause = "The server is shutting down and accepts no new sessions, turns or imports."

    def __init__(self, *, was_running: bool = False) -> None:
        """``was_running``: a running turn ended.

        Otherwise nothing was stored, and the client can try again soon.
        """
        effect = (
            "ended this answer before it was complete"
            if was_running
            else "accepts no new sessions or turns"
        )
        details = {} if was_running else {"retry_after": 5}
        super().__init__(f"The server is shutting down and {effect}. Try again later.", **details)


class NotReady(MochiError):
    """The server cannot store new turns.

    ``reason`` is a sentence. Clients without an API key also receive it.
    """

    code = "NOT_READY"
    status = 503
    cause = "The server cannot store sessions now."
    template = "The server is not ready. {reason}"


class Unauthorized(MochiError):
    code = "UNAUTHORIZED"
    status = 401
    cause = "The API key is missing, wrong or expired."

    def __init__(
        self,
        *,
        keys_exist: bool = True,
        key_sent: bool = False,
        source: str = "in MOCHI_API_KEYS, or the key that the server printed",
        expired_key: str | None = None,
    ) -> None:
        """``source`` says where the keys of the server are."""
        text = "An API key is required: send `Authorization: Bearer <key>`."
        if key_sent:
            text = f"The API key is wrong. Send one of the keys {source}."
        if expired_key is not None:
            text = (
                f"The API key {expired_key!r} has expired. The operator of the server can create "
                "another with `mochi-server keys add`."
            )
        hint = (
            " The server has no keys: set MOCHI_API_KEYS, or serve without keys (`--insecure`, "
            "`insecure=True`)."
        )
        super().__init__(text if keys_exist else text + hint)


class Forbidden(MochiError):
    code = "FORBIDDEN"
    status = 403
    cause = "The request needs an API key of the scope `all`."


class RateLimited(MochiError):
    code = "RATE_LIMITED"
    status = 429
    cause = "The requests of the API key exceed a limit in the keys file."
    template = "The limit of this API key is {limit}. Send the request again in {retry_after} s."


class OriginForbidden(MochiError):
    code = "ORIGIN_FORBIDDEN"
    status = 403
    cause = "The request comes from a web page of another origin."

    def __init__(self, origin: str) -> None:
        text = (
            f"Web pages of {origin!r} may not use this server. Add the origin to "
            "MOCHI_ALLOWED_ORIGINS."
        )
        if origin == "null":
            problem = (
                "This page has no origin, because it was opened from a file or runs in a sandbox."
            )
            text = (
                f"{problem} Serve it from a web server, such as `python -m http.server`, and "
                "open it at localhost."
            )
        super().__init__(text, origin=origin)


class HostForbidden(MochiError):
    code = "HOST_FORBIDDEN"
    status = 403
    cause = "The Host header does not name this machine."

    def __init__(self, host: str, scheme: str = "http") -> None:
        """``scheme`` is that of the page's address: `https` behind a proxy with TLS."""
        text = (
            f"Host {host!r} is not a name of this machine. Use localhost, "
            f"or add the origin `{scheme}://{host}` to MOCHI_ALLOWED_ORIGINS."
        )
        super().__init__(text, host=host)


class MalformedRequest(MochiError):
    code = "BAD_REQUEST"
    status = 400
    cause = "The request line or the headers are invalid or ambiguous."


class BodyTooLarge(MochiError):
    code = "BODY_TOO_LARGE"
    status = 413
    cause = "The request body exceeds the limit."
    template = "The request body exceeds {limit} bytes, the limit of MOCHI_MAX_BODY_BYTES."


class UnpackedTooLarge(BodyTooLarge):
    template = "The ZIP file unpacks to more than {limit} bytes, the limit of MOCHI_MAX_BODY_BYTES."


class HeadersTooLarge(MochiError):
    code = "HEADERS_TOO_LARGE"
    status = 431
    cause = "The path and headers of the request exceed the limit."
    template = (
        "The path and headers of the request, or its trailers, exceed {limit} bytes. Shorten them."
    )


class RequestTimedOut(MochiError):
    code = "REQUEST_TIMED_OUT"
    status = 408
    cause = "The rest of the request did not arrive in time."
    template = "The request timed out after {seconds:g} seconds without data. Send it again."


class RouteNotFound(MochiError):
    code = "NOT_FOUND"
    status = 404
    cause = "The path does not exist."

    def __init__(
        self,
        path: str,
        similar: Sequence[str] = (),
        prefix: str = "",
        *,
        lacks_session: bool = False,
    ) -> None:
        """``similar`` are paths that exist. ``lacks_session``: the session ID is empty."""
        advice = f"{prefix}/openapi.json lists all routes."
        if similar:
            advice = f"Use {' or '.join(similar)}."
        if lacks_session:
            advice = "The session ID between two slashes is empty. Send the ID of a session."
        super().__init__(f"There is no route {path!r}. {advice}", path=path)


class MethodNotAllowed(MochiError):
    code = "METHOD_NOT_ALLOWED"
    status = 405
    cause = "The route does not support the method."
    template = "{path!r} does not support {method}. It supports {allowed}."
    fields = ("method", "path", "allowed")


class InternalError(MochiError):
    code = "INTERNAL_ERROR"
    status = 500
    cause = "An unexpected error occurred in the server."
    template = "An unexpected error occurred in the server. See its log."


def all_errors() -> list[type[MochiError]]:
    """Return the error classes with a code of their own, in the order of this module."""
    classes = [
        value
        for value in globals().values()
        if isinstance(value, type) and issubclass(value, MochiError)
    ]
    return [error for error in classes if "code" in vars(error)]


def restored_error(code: str, message: str) -> MochiError:
    """Return an error that was stored as its code and message.

    Of several classes with the code, the first one counts. An unknown code is that of an unexpected
    error.
    """
    for error in all_errors():
        if error.code == code:
            return error.restored(message)
    return InternalError.restored(message)
