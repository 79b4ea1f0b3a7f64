// The chat: opens a conversation, sends messages, and shows the events of the answers.

import { ApiError, connection, describe, get, post, put, readEvents, remove, request, send } from "./api.js";
import { attach, connectAttachments, fieldsOf, sentElements, storedElements, takeAttachments } from "./attachments.js";
import { compare, showComparedModels } from "./compare.js";
import { announce, byId, element, shortNumber, showStatus } from "./page.js";
import { connectSettings, creationBody, loadChoices, settingsSaved, showSettings, useSession } from "./settings.js";
import { Sidebar, titleOf, toggleMenu } from "./sidebar.js";
import { Turn } from "./turn.js";
import { showVersions } from "./versions.js";

const MAX_FAILURES = 6;    // of a request before its first event
const FIRST_DELAY = 250;   // milliseconds until the first attempt to reconnect
const LONGEST_DELAY = 4000;

let stream = null;                 // AbortController of the stream that is read, or null
let opening = Promise.resolve();   // settles when the page shows the current conversation

const currentSession = () => location.hash.slice(1) || null;
const comparing = () => !byId("columns").hidden;

const sidebar = new Sidebar({
  currentSession,
  open: openSession,
  async onChanged(sessionId) {
    if (sessionId === currentSession()) await showStatusOf(sessionId);
    await sidebar.refresh();
  },
  async onDeleted(sessionId) {
    if (sessionId === currentSession()) openSession(null);
    await sidebar.refresh();
    byId("search").focus();
  },
});

// ---- Open a conversation ----------------------------------------------------------------------------------------

/** Run a function that opens a conversation. Messages that are sent meanwhile wait for it. */
function open(load) {
  byId("send").disabled = true;
  opening = load().finally(() => { byId("send").disabled = false; });
}

function openSession(sessionId) {
  toggleMenu(false);
  if (comparing()) showView("chat");
  if (sessionId === currentSession()) open(showSession);
  else location.hash = sessionId ?? "";  // the hashchange event opens the session
}

/** Show the conversation of the address bar. If its turn is running, show the rest of the answer, too. */
async function showSession() {
  const sessionId = currentSession();
  stream?.abort();
  setStream(null);
  showStatus("");
  showContextWindow(null);
  byId("log").replaceChildren();
  try {
    const run = sessionId ? await get(`/chat/${sessionId}/run`) : null;  // before the messages, which may change
    const session = sessionId ? await get(`/sessions/${sessionId}`) : null;
    if (sessionId !== currentSession()) return;
    showSettings(session);
    showTitle(session);
    const running = ["running", "waiting_for_approval"].includes(run?.state);
    const turn = showMessages(session, running);
    await sidebar.refresh();
    if (!session) return;
    // The page is empty after a reload. Therefore read the events of the run from the beginning.
    if (running) follow(turn, { headers: { "Last-Event-ID": `${run.run_id}:0` } });
    else await showStatusOf(sessionId);
  } catch (error) {
    if (error.code === "SESSION_NOT_FOUND") {
      history.replaceState(null, "", location.pathname + location.search);
      await showSession();
    }
    showStatus(describe(error));
  }
}

/** Show the stored messages. During a run, leave out the messages after the last user message. */
function showMessages(session, running) {
  const messages = session?.messages ?? [];
  const lastUser = messages.findLastIndex((message) => message.role === "user");
  let turn = null;
  for (const message of running ? messages.slice(0, lastUser + 1) : messages) {
    if (message.role === "user") turn = addTurn(message.content, storedElements(session.session_id, message));
    else if (message.role !== "system") {
      turn ??= addTurn(null);  // imported conversations can begin with an answer
      showMessage(turn, message);
    }
  }
  if (!turn) byId("log").append(element("p", { className: "empty" }, "A new conversation. Write a message to begin."));
  else if (!running) turn.finish();
  byId("view").scrollTop = byId("view").scrollHeight;
  return turn;
}

function showMessage(turn, message) {
  if (message.role === "tool") {
    const { tool_name, success, content, tool_call_id: id } = message;
    turn.showResult(id, { tool_name, success, result: content, error_message: content });
    return;
  }
  if (message.thinking) turn.appendText("Thinking", message.thinking);
  if (message.content) turn.appendText("text", message.content);
  for (const call of message.tool_calls ?? []) turn.showCall(call.id, call.function.name, call.function.arguments);
  if (message.interrupted) turn.addNote("(interrupted)");
  turn.finishBlock();
}

function addTurn(text, attachments) {
  // Only the last turn can be regenerated.
  for (const old of byId("log").querySelectorAll(".regenerate, .empty")) old.remove();
  return new Turn(currentSession(), { text, attachments }, { edit, regenerate, onContextWindow: showContextWindow });
}

function showTitle(session) {
  byId("title").textContent = session ? titleOf(session) : "New conversation";
  document.title = session ? `${titleOf(session)} – mochi chat` : "mochi chat";
}

/** Show the title, the context window and the versions of a session. */
async function showStatusOf(sessionId) {
  const [session, status] = await Promise.all([get(`/sessions/${sessionId}`), get(`/sessions/${sessionId}/status`)]);
  if (sessionId !== currentSession()) return;
  showTitle(session);
  showContextWindow(status.context_window);
  if (!stream) showVersions(session, byId("log").querySelectorAll(".turn"), () => open(showSession));
}

function showContextWindow(contextWindow) {
  const { current_window: size, usage_tokens: used } = contextWindow ?? {};
  byId("window").hidden = !size || comparing();
  if (!size) return;
  byId("gauge").value = (used ?? 0) / size;
  byId("gauge-text").textContent = `${shortNumber(used ?? 0)} of ${shortNumber(size)} tokens`;
}

// ---- Send a message ---------------------------------------------------------------------------------------------

function setStream(controller) {
  stream = controller;
  byId("stop").hidden = !controller;
  if (controller && document.activeElement === byId("send")) byId("message").focus();
  byId("send").hidden = Boolean(controller);
  byId("log").ariaBusy = Boolean(controller);
  byId("log").classList.toggle("busy", Boolean(controller));
}

async function sendMessage(text) {
  await opening;
  if (stream) return;  // the answer of another client is still running
  setStream(new AbortController());
  byId("message").value = "";
  const attachments = takeAttachments();
  const isNew = !currentSession();
  try {
    if (isNew) await createSession();
  } catch (error) {
    setStream(null);
    byId("message").value = text;
    attach(attachments);
    throw error;
  }
  const turn = addTurn(text, sentElements(attachments));
  const refusal = await follow(turn, chatRequest({ message: text, ...fieldsOf(attachments) }));
  if (!(refusal instanceof ApiError) || turn.sessionId !== currentSession()) return;
  const { messages } = await get(`/sessions/${turn.sessionId}/messages`);
  const stored = messages.filter((message) => message.role === "user").length;
  if (stored === byId("log").querySelectorAll(".user").length) return;  // only the answer has failed
  // The server refused the message, for example its file.
  if (isNew) await removeNewSession(turn);
  else await showSession();
  showStatus(describe(refusal));
  byId("message").value = text;
  attach(attachments);
}

/** Remove a session whose first message the server refused. The settings stay for the next message. */
async function removeNewSession(turn) {
  await remove(`/sessions/${turn.sessionId}`);
  history.replaceState(null, "", location.pathname + location.search);
  useSession(null);
  turn.box.remove();
  showTitle(null);
  await sidebar.refresh();
}

async function createSession() {
  const { session_id: sessionId } = await post("/sessions", creationBody());
  history.pushState(null, "", `#${sessionId}`);
  useSession(sessionId);
  await sidebar.refresh();
}

/** Return a chat request. Its key makes it safe to send it twice. The turn continues if the page is closed. */
function chatRequest(body) {
  const key = `${Date.now()}-${Math.random()}`;
  return { method: "POST", body: { ...body, on_disconnect: "continue" }, headers: { "Idempotency-Key": key } };
}

/** Send a chat request and show the events of the answer until its end. Return the error of the request, if any. */
async function follow(turn, firstRequest) {
  const controller = new AbortController();
  setStream(controller);
  await settingsSaved();
  let failure = null;
  try {
    await readRun(turn, firstRequest, controller.signal);
  } catch (error) {
    failure = error;
    if (!controller.signal.aborted) turn.addNote(describe(error), "failure");
  }
  if (controller.signal.aborted) return null;  // the page shows another conversation
  showStatus("");
  turn.finish();
  announce(turn.answerText());
  setStream(null);
  await Promise.all([sidebar.refresh(), showStatusOf(turn.sessionId)]).catch((error) => showStatus(describe(error)));
  return failure;
}

/**
 * Read the events of a run. After a lost connection, continue after the last event, as soon as the server answers. If no
 * event has arrived, repeat the first request a few times.
 */
async function readRun(turn, firstRequest, signal) {
  let lastEvent = null;
  for (let failures = 0; ;) {
    const next = lastEvent ? { headers: { "Last-Event-ID": lastEvent } } : firstRequest;
    try {
      const response = await send(`/chat/${turn.sessionId}/stream`, { ...next, signal });
      if (response.status === 204) return;
      for await (const event of readEvents(response)) {
        if (signal.aborted) return;
        lastEvent = event.id;
        failures = 0;
        turn.handle(event);
        if (event.event === "done") return;
      }
    } catch (error) {
      const isLost = !lastEvent && failures >= MAX_FAILURES;
      if (signal.aborted || error instanceof ApiError || isLost) throw error;
    }
    showStatus("The connection is lost. Connecting again …");
    await new Promise((resume) => setTimeout(resume, Math.min(FIRST_DELAY * 2 ** failures++, LONGEST_DELAY)));
  }
}

function stopAnswer() {
  if (comparing()) stream?.abort();
  else request(`/chat/${currentSession()}/stop`, { method: "POST" }).catch((error) => showStatus(describe(error)));
}

/** Answer the last user message again. */
async function regenerate(turn) {
  if (stream) return;
  turn.clearAnswer();
  byId("message").focus();
  await follow(turn, chatRequest({}));
}

/** Replace a user message, remove the turns after it, and answer it again. */
async function edit(turn, text) {
  if (stream) return;
  const turns = [...byId("log").querySelectorAll(".turn")];
  const withUser = turns.filter((box) => box.querySelector(".user, .edit"));
  try {
    const { messages } = await get(`/sessions/${turn.sessionId}/messages`);
    const userIndexes = [...messages.keys()].filter((index) => messages[index].role === "user");
    const index = userIndexes[withUser.indexOf(turn.box)];
    await put(`/sessions/${turn.sessionId}/messages/${index}`, { content: text });
  } catch (error) {
    showStatus(describe(error));
    throw error;
  }
  for (const later of turns.slice(turns.indexOf(turn.box) + 1)) later.remove();
  turn.setUserText(text);
  regenerate(turn);
}

// ---- Compare models ---------------------------------------------------------------------------------------------

async function compareModels(text) {
  const controller = new AbortController();
  setStream(controller);
  try {
    await compare(text, controller.signal);
    announce("The comparison is complete.");
  } catch (error) {
    if (!controller.signal.aborted) throw error;
  } finally {
    setStream(null);
  }
}

function showView(name) {
  const isComparison = name === "compare";
  if (isComparison === comparing()) return;
  if (isComparison) stream?.abort();  // the turn continues on the server
  for (const id of ["log", "chat-options", "open-settings", "attachments", "scope"]) byId(id).hidden = isComparison;
  for (const id of ["columns", "compared-models"]) byId(id).hidden = !isComparison;
  byId("show-chat").ariaCurrent = isComparison ? null : "page";
  byId("show-compare").ariaCurrent = isComparison ? "page" : null;
  byId("send").textContent = isComparison ? "Compare" : "Send";
  byId("title").textContent = "Compare models";
  setStream(null);
  if (isComparison) byId("window").hidden = true;
  else open(showSession);
}

// ---- Start ------------------------------------------------------------------------------------------------------

async function connect() {
  try {
    showComparedModels(await loadChoices());
    await showSession();
  } catch (error) {
    setStream(null);
    byId("server").open = true;
    toggleMenu(true);
    showStatus(describe(error));
  }
}

function newConversation() {
  openSession(null);
  byId("message").focus();
}

function handleShortcut(event) {
  if (event.key === "Escape" && byId("menu").getAttribute("aria-expanded") === "true") toggleMenu(false);
  else if (event.key === "Escape" && stream && !byId("settings").open) stopAnswer();
  else if (event.key === "k" && (event.ctrlKey || event.metaKey)) byId("search").focus();
  else if (event.code === "KeyN" && event.altKey) newConversation();
  else return;
  event.preventDefault();
}

byId("new").onclick = newConversation;
byId("show-chat").onclick = () => showView("chat");
byId("show-compare").onclick = () => showView("compare");
byId("stop").onclick = stopAnswer;
byId("composer").onsubmit = (event) => {
  event.preventDefault();
  const text = byId("message").value.trim();
  if (!text || stream) return;
  (comparing() ? compareModels(text) : sendMessage(text)).catch((error) => showStatus(describe(error)));
};
byId("message").onkeydown = (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("composer").requestSubmit();
};
byId("connection").onsubmit = (event) => {
  event.preventDefault();
  connection.save(byId("address").value, byId("key").value);
  history.replaceState(null, "", "#");
  open(connect);
};
document.onkeydown = handleShortcut;
window.onhashchange = () => open(showSession);

connectSettings();
connectAttachments();
const address = new URLSearchParams(location.search).get("server");
if (address) connection.save(address);
byId("address").value = connection.address;
byId("key").value = connection.key;
open(connect);
