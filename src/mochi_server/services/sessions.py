"""Session operations for clients.

They check models, prompt files, context windows, tools and agents.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from mochi_server import errors
from mochi_server.constants import AGENT_TOOL
from mochi_server.events import TurnWarning
from mochi_server.inference.gateway import HostOfTurn, ModelGateway
from mochi_server.inference.window_registry import (
    WindowDecision,
    WindowRegistry,
    manual_window,
    within_limits,
)
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.history_changes import ChangedHistory, change_history
from mochi_server.services.keys import KeyRing
from mochi_server.services.system_prompts import SystemPromptService
from mochi_server.sessions.audit import audit
from mochi_server.sessions.caller import CALLER, acting_as
from mochi_server.sessions.session import (
    ChatSession,
    SessionMetadata,
    edited,
    refuse_if_turn_goes_on,
    with_system_prompt,
    with_waiting_calls,
    without_system_prompt,
)
from mochi_server.sessions.store import FieldChanges, SessionStore
from mochi_server.sessions.types import (
    AgentSettings,
    AttachmentReference,
    Image,
    SessionCreationOptions,
    ToolExecutionPolicy,
    ToolSettings,
    attachments_of,
    images_of,
    media_type_of,
    window_config,
)
from mochi_server.tools.discovery import ToolCatalogue
from mochi_server.tools.registry import ToolRegistry
from mochi_server.util.clock import now
from mochi_server.util.text import join_names, nearest

_STORED_OF_OTHER_MODELS = ("current_window", "manual_override", "adjustment_history")
"""Keys of the window configuration of a model that the session no longer uses."""
_RESERVED = (
    f"The tool {AGENT_TOOL!r} cannot be used while agents are enabled, because it calls the "
    "agents. Rename it."
)


@dataclass(frozen=True)
class Selection:
    """Tools and agents that a session enables.

    ``warnings`` has one entry for each name that cannot be used.
    """

    active_tools: list[str] = field(default_factory=list)
    missing_tools: list[str] = field(default_factory=list)
    """Tools and groups that do not exist, and reserved tools."""
    active_agents: list[str] = field(default_factory=list)
    missing_agents: list[str] = field(default_factory=list)
    """Agents that do not exist or are invalid."""
    warnings: list[TurnWarning] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SessionState:
    """Session with the current state of its model.

    ``model`` is None if the model cannot be found. ``selection`` and ``policy`` are those of a turn
    that the current caller sends.
    """

    session: ChatSession
    model: ModelInfo | None
    manual_window: int | None
    has_dynamic_windows: bool
    selection: Selection
    policy: ToolExecutionPolicy
    host: HostOfTurn | None
    """Host of the latest turn, or None if it is unknown."""


class _WindowChanged(Exception):
    """Another request or a turn has changed the model or the window of a session."""


_LABELS = frozenset({"tags", "pinned", "archived"})
"""Fields whose changes keep ``updated_at``, and so the session's place in lists."""


@dataclass(frozen=True)
class SessionService:
    store: SessionStore
    gateway: ModelGateway
    prompts: SystemPromptService
    tools: ToolRegistry
    agents: Callable[[], Awaitable[Mapping[str, Any]]]
    """Function that returns all agents by name, with ``valid`` and ``error_message``.

    The agents have only their Python tools.
    """
    keys: KeyRing

    async def create(self, options: SessionCreationOptions) -> ChatSession:
        """Create a session.

        Raise ``PromptNotFound``, ``ValidationFailed`` or the errors of ``find_model``.
        """
        check_policy(options.tool_settings.execution_policy)
        model = await self.gateway.find_model(options.model)
        content = await self._system_prompt(
            options.system_prompt, options.system_prompt_source_file
        )
        resolved = replace(
            options,
            system_prompt=content,
            system_prompt_source_file=options.system_prompt_source_file or None,
            context_window_config=self.gateway.windows.initial_config(model),
        )
        return await self.store.create(ChatSession.create(resolved))

    async def patch(self, session_id: str, changes: Mapping[str, Any]) -> ChatSession:
        """Set the fields in ``changes``.

        None clears a field. ``context_window`` is ``{"current_window": tokens}``. Raise
        ``ValidationFailed`` or the errors of ``find_model``.
        """
        session = await self.store.load(session_id)
        if not changes:
            return session
        changed = await self._patched(session, dict(changes))
        audit("Session settings changed", session_id=session_id, fields=",".join(sorted(changes)))
        return changed

    async def _patched(self, session: ChatSession, fields: dict[str, Any]) -> ChatSession:
        if "model" in fields and fields["model"] is None:
            problem = "cannot be null. Send a model name, or omit the field."
            raise errors.ValidationFailed.at("model", problem)
        tool_settings = fields.get("tool_settings")
        if tool_settings is not None:
            check_policy(tool_settings.execution_policy)
        host = fields.get("ollama_host")
        if host is not None:
            await self._check_host(host)
        sets_summary_model = "summary_model" in fields
        summary_model = fields.get("summary_model", session.metadata.summary_model)
        if summary_model is not None and (sets_summary_model or host is not None):
            pin = fields.get("ollama_host", session.metadata.ollama_host)
            gateway = await self.gateway.pinned(pin)
            await gateway.find_model(summary_model)
        if sets_summary_model and summary_model is None:
            fields = {**fields, "summarized_by": None}  # it is shown in place of the summary model
        if host is None and fields.keys().isdisjoint({"model", "context_window"}):
            has_only_labels = fields.keys() <= _LABELS
            return await self.store.patch(session.session_id, fields, touch=not has_only_labels)
        while True:  # until the session stays the same between the reading and the write
            change = await self._change_of_model(session, fields)
            with suppress(_WindowChanged):
                return await self.store.patch(session.session_id, change)
            session = await self.store.load(session.session_id)

    async def _change_of_model(self, session: ChatSession, fields: dict[str, Any]) -> FieldChanges:
        """Return a function that returns the changes of a session's model, host or window.

        The function raises ``_WindowChanged`` if the stored model or window is no longer that of
        ``session``.
        """
        before = session.metadata
        gateway = await self.gateway.pinned(fields.get("ollama_host", before.ollama_host))
        model = await gateway.find_model(fields.get("model") or session.model)
        changes = dict(fields)
        sets_window = "context_window" in fields
        chosen = (changes.pop("context_window", None) or {}).get("current_window")
        if sets_window or qualified_name(model.name) != qualified_name(session.model):
            windows = gateway.of_session(session.session_id, model.name).windows
            changes["context_window_config"] = await _window_config(
                windows, session, model, chosen, sets_window=sets_window
            )

        def unless_changed(stored: SessionMetadata) -> dict[str, Any]:
            if stored.model != before.model:
                raise _WindowChanged
            if stored.context_window_config != before.context_window_config:
                raise _WindowChanged
            return changes

        return unless_changed

    async def _check_host(self, name: str) -> None:
        await self.gateway.fleet.refresh()
        names = [host.name for host in self.gateway.fleet.active]
        if name not in names:
            problem = f"no host {name!r}; the hosts are: {join_names(names)}"
            raise errors.ValidationFailed.at("ollama_host", problem)

    async def warnings(self, session: ChatSession, changes: Mapping[str, Any]) -> list[TurnWarning]:
        """Return warnings about changes that the session has applied: unknown tools and agents, and
        a manual window.
        """
        with acting_as(self.keys.caller_inside(session.metadata.owner)):
            selection = await self.selection(
                changes.get("tool_settings"), changes.get("agent_settings")
            )
        warnings = list(selection.warnings)
        if not changes.keys().isdisjoint({"model", "context_window"}):
            warnings += await self._window_warnings(session)
        return warnings

    async def selection(
        self, tools: ToolSettings | None, agents: AgentSettings | None
    ) -> Selection:
        """Return which tools and agents in the settings can be used.

        The value None stands for empty settings.
        """
        selection = Selection()
        if tools is not None and (tools.tools or tools.tool_group):
            _check_tools(tools, await self.tools.catalogue(), selection)
        if agents is not None and agents.enabled_agents:
            _check_agents(agents, await self.agents(), selection)
        if selection.active_agents and AGENT_TOOL in selection.active_tools:
            selection.active_tools.remove(AGENT_TOOL)
            selection.missing_tools.append(AGENT_TOOL)
            selection.warnings.append(TurnWarning(errors.ToolNotFound.code, _RESERVED))
        return selection

    async def _window_warnings(self, session: ChatSession) -> list[TurnWarning]:
        gateway = await self.gateway.pinned(session.metadata.ollama_host)
        model = await gateway.find_model(session.model)
        own = manual_window(model, session.metadata.context_window_config)
        windows = gateway.of_session(session.session_id, model.name).windows
        others = windows.size(model.name) or windows.initial_config(model)["current_window"]
        if own is None or own == others or model.is_cloud:
            return []
        window = f"{others} tokens" if others else "the window that Ollama chooses"
        text = (
            f"This session uses a context window of {own} tokens. Other sessions with model "
            f"{session.model!r} use {window}. Ollama reloads the model whenever a turn needs "
            "another window than the turn before."
        )
        return [TurnWarning("WINDOW_DIFFERS", text)]

    async def edit_message(
        self, session_id: str, index: int, content: str, images: Sequence[Image] | None = None
    ) -> ChangedHistory:
        """Replace a user message and remove the later messages. The replaced ones become a version.

        ``images`` replace its images, unless they are None. Raise ``InvalidMessageIndex``,
        ``SessionBusy``, or ``ValidationFailed`` if the model cannot see them.
        """
        async with self.changing(session_id) as session:
            return await self.edit(session, index, content, images)

    async def edit(
        self,
        session: ChatSession,
        index: int,
        content: str,
        images: Sequence[Image] | None = None,
    ) -> ChangedHistory:
        """Edit a message like ``edit_message``, for a caller that holds the session's lock.

        May also raise ``SessionConflict``.
        """
        change = edited(session, index, content, images)
        if images:
            await self._check_vision(session)
        return await change_history(self.store, session, change)

    async def _check_vision(self, session: ChatSession) -> None:
        """Raise ``ValidationFailed`` if the model of a session cannot see images.

        If the model cannot be found, skip this check, as a message does while Ollama is
        unreachable.
        """
        with suppress(errors.OllamaUnreachable, errors.OllamaError, errors.ModelNotFound):
            gateway = await self.gateway.pinned(session.metadata.ollama_host)
            check_vision(await gateway.find_model(session.model), session.model)

    async def set_system_prompt(
        self, session_id: str, content: str | None, source_file: str | None
    ) -> ChatSession:
        """Set the system message.

        Raise ``PromptNotFound``, ``SessionBusy`` or ``ValidationFailed``.
        """
        async with self.changing(session_id) as session:
            text = await self._system_prompt(content, source_file)
            if text is None:
                raise errors.ValidationFailed(
                    "The system prompt is empty. Send content or source_file."
                )
            await self.store.write(
                session_id, with_system_prompt(session, text, source_file or None)
            )
            audit("Session settings changed", session_id=session_id, fields="system_prompt")
            return await self.store.load(session_id)

    async def remove_system_prompt(self, session_id: str) -> None:
        """Remove the system message.

        Raise ``SessionBusy``, or ``PromptNotFound`` if there is no system message.
        """
        async with self.changing(session_id) as session:
            if session.system_prompt is None:
                raise errors.PromptNotFound(None)
            await self.store.write(session_id, without_system_prompt(session))
            audit("Session settings changed", session_id=session_id, fields="system_prompt")

    @asynccontextmanager
    async def changing(self, session_id: str) -> AsyncIterator[ChatSession]:
        """Lock a session, and return it.

        Raise ``SessionBusy`` if it has a turn, also one that waits for approval.
        """
        async with AsyncExitStack() as locks:
            try:
                await locks.enter_async_context(self.store.hold(session_id))
            except errors.SessionBusy as error:
                session = await self.store.load(session_id)
                raise with_waiting_calls(error, session) from None
            session = await self.store.load(session_id)
            refuse_if_turn_goes_on(session)
            yield session

    async def image(self, session_id: str, sha256: str) -> Image:
        """Return the image with this SHA-256.

        Raise ``BlobNotFound`` if no message of the session contains it.
        """
        session = await self.store.load(session_id)
        for message in session.history:
            if sha256 in images_of(message):
                data = await self.store.load_image(sha256)
                media_type = media_type_of(data) or "application/octet-stream"
                return Image(sha256, media_type, data)
        raise errors.BlobNotFound(sha256)

    async def file(self, session_id: str, sha256: str) -> tuple[AttachmentReference, bytes]:
        """Return the reference and the bytes of the file with this SHA-256.

        Raise ``BlobNotFound`` if no message of the session contains it.
        """
        session = await self.store.load(session_id)
        for message in session.history:
            for attachment in attachments_of(message):
                if attachment["sha256"] == sha256:
                    return attachment, await self.store.load_image(sha256)
        raise errors.BlobNotFound(sha256)

    async def state(self, session_id: str) -> SessionState:
        session = await self.store.load(session_id)
        tool_settings = session.metadata.tool_settings
        caller = self.keys.caller_inside(session.metadata.owner)
        with acting_as(caller):
            selection = await self.selection(tool_settings, session.metadata.agent_settings)
        model = None
        config = session.metadata.context_window_config
        manual = config["current_window"] if config["manual_override"] else None
        with suppress(errors.ModelNotFound, errors.OllamaUnreachable, errors.OllamaError):
            gateway = await self.gateway.pinned(session.metadata.ollama_host)
            model = await gateway.find_model(session.model)
            manual = manual_window(model, config)  # within the limits of the model
        return SessionState(
            session=session,
            model=model,
            manual_window=manual,
            has_dynamic_windows=self.gateway.windows.dynamic,
            selection=selection,
            policy=caller.permissions.stricter_policy(tool_settings.execution_policy),
            host=self._last_host(session),
        )

    def _last_host(self, session: ChatSession) -> HostOfTurn | None:
        """Return the host of the latest turn, or None if another server has executed this turn."""
        host = self.gateway.hosts_of_turns.get(session.session_id)
        turn = session.metadata.turn
        if host is None or turn is None or host.run_id != turn.run_id:
            return None
        return host

    async def _system_prompt(self, content: str | None, source_file: str | None) -> str | None:
        """Return ``content`` or, if it is blank, the text of the prompt file.

        Return None if both are missing.
        """
        if content is not None and content.strip():
            return content
        if not source_file:
            return None
        text = (await asyncio.to_thread(self.prompts.get, source_file)).content
        if not text.strip():
            raise errors.ValidationFailed(
                f"The prompt file {source_file!r} is blank. Write a prompt into it."
            )
        return text


async def _window_config(
    windows: WindowRegistry,
    session: ChatSession,
    model: ModelInfo,
    chosen: int | None,
    *,
    sets_window: bool,
) -> dict[str, Any]:
    """Return the ``context_window_config`` of a session after a change of its model or window.

    ``chosen`` is the new manual window. If ``sets_window`` is true, None restores the automatic
    window. ``windows`` are those of the session's host. If the model has a manual window already,
    they record it, even if ``chosen`` replaces it.
    """
    config = session.metadata.context_window_config
    of_model = config
    name = qualified_name(model.name)
    previous = qualified_name(session.model)
    if name != previous:
        of_model, config = _switched(config, previous, name)
    manual = manual_window(model, of_model)
    if manual is not None:
        # An earlier process of this server may have loaded the model with it.
        windows.record_manual(model.name, manual)
    if chosen is not None:
        decision = WindowDecision(within_limits(chosen, model), "manual_override")
        return windows.adjusted(config, decision, now(), by_user=True)
    if sets_window and of_model["manual_override"]:
        of_model = of_model | {"manual_override": False, "current_window": None}
    decision = await windows.decide(model, of_model, previous_model=session.model)
    by_user = decision.reason == "manual_override"
    if name == previous and config["manual_override"]:  # restores the automatic window
        decision = replace(decision, reason="initial_setup")
        by_user = True
    return windows.adjusted(config, decision, now(), by_user=by_user)


def _switched(
    config: Mapping[str, Any], previous: str, name: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the stored configuration of the model ``name``, and that of the session, in which a
    manual window of the model ``previous`` is stored for later.
    """
    others = {}
    stored = config.get("other_models")
    if isinstance(stored, dict):
        others.update(stored)
    if config["manual_override"]:
        others[previous] = {key: config[key] for key in _STORED_OF_OTHER_MODELS}
    of_model = window_config(others.pop(name, None))
    return of_model, {**config, "other_models": others}


def check_vision(model: ModelInfo, name: str) -> None:
    """Raise ``ValidationFailed`` if a model cannot see images. ``name`` is its requested name."""
    if not model.has_capability("vision"):
        text = f"images: model {name!r} cannot see images. Choose a vision model."
        raise errors.ValidationFailed(text, model=name)


def check_policy(
    policy: ToolExecutionPolicy,
    location: str | Sequence[str] = ("tool_settings", "execution_policy"),
) -> None:
    """Raise ``ValidationFailed`` if the caller must use a stricter policy."""
    permissions = CALLER.get().permissions
    if not permissions.allow_policy(policy):
        problem = (
            f"{policy.value!r} is not available to this API key; "
            f"use {permissions.policy.value!r} or a stricter policy"
        )
        raise errors.ValidationFailed.at(location, problem)


def _check_tools(settings: ToolSettings, catalogue: ToolCatalogue, selection: Selection) -> None:
    selection.active_tools.extend(catalogue.selected(settings.tools, settings.tool_group))
    for name in dict.fromkeys(settings.tools):
        if name not in catalogue.tools:
            selection.missing_tools.append(name)
            _warn_unknown(selection, errors.ToolNotFound.code, "tool", name, catalogue.tools)
    group = settings.tool_group
    if group and group not in catalogue.groups:
        selection.missing_tools.append(group)
        _warn_unknown(selection, errors.ToolNotFound.code, "tool group", group, catalogue.groups)


def _check_agents(settings: AgentSettings, agents: Mapping[str, Any], selection: Selection) -> None:
    for name in dict.fromkeys(settings.enabled_agents):
        if name in agents and agents[name].valid:
            selection.active_agents.append(name)
            continue
        selection.missing_agents.append(name)
        if name in agents:
            message = errors.AgentInvalid(name, str(agents[name].error_message)).message
            selection.warnings.append(TurnWarning(errors.AgentInvalid.code, message))
        else:
            valid = {each: agent for each, agent in agents.items() if agent.valid}
            _warn_unknown(selection, errors.AgentNotFound.code, "agent", name, valid)


def _warn_unknown(
    selection: Selection, code: str, kind: str, name: str, known: Mapping[str, object]
) -> None:
    sentences = [f"There is no {kind} named {name!r}."]
    if len(selection.warnings) < 10:  # a search takes milliseconds
        similar = nearest(name, known)
        if similar:
            sentences.append(f"Did you mean {similar!r}?")
    if known:
        sentences.append(f"Existing {kind}s: {join_names(known)}.")
    else:
        sentences.append(f"There are no {kind}s.")
    selection.warnings.append(TurnWarning(code, " ".join(sentences)))
