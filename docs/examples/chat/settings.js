// Settings of a conversation: model, thinking, tools, agents, system prompt and summary.
// The form holds the settings. Each change is sent at once, or with the request that creates the conversation.

import { describe, get, patch, post, put, remove } from "./api.js";
import { byId, element } from "./page.js";

let sessionId = null;
let toolNames = [];
let saving = Promise.resolve();

/** Load what the user can choose from: models, tools, agents and prompt files. Return the names of the models. */
export async function loadChoices() {
  const [{ models }, { tools }, { agents }, { prompts }] = await Promise.all(
    ["/models", "/tools", "/agents", "/system-prompts"].map(get));
  toolNames = Object.keys(tools);
  const agentNames = Object.values(agents).filter((agent) => agent.valid).map((agent) => agent.name);
  const modelNames = models.map((model) => model.name);
  byId("model").replaceChildren(...modelNames.map((name) => new Option(name)));
  fillChoices("tools", toolNames, "This server has no tools.");
  fillChoices("agents", agentNames, "This server has no agents.");
  byId("prompt-file").replaceChildren(new Option("(own text)", ""), ...prompts.map(({ filename }) => new Option(filename)));
  return modelNames;
}

function fillChoices(id, names, none) {
  const boxes = names.map((name) => element("label", {}, element("input", { type: "checkbox", value: name }), name));
  byId(id).replaceChildren(...(names.length ? boxes : [element("span", { className: "note" }, none)]));
}

const boxes = (id) => [...byId(id).querySelectorAll("input")];
const chosen = (id) => boxes(id).filter((box) => box.checked).map((box) => box.value);
const choose = (id, names) => boxes(id).forEach((box) => { box.checked = names.includes(box.value); });

const readTools = () => ({ tool_settings: { tools: chosen("tools"), execution_policy: byId("policy").value } });
const readAgents = () => ({ agent_settings: { enabled_agents: chosen("agents") } });
const readModel = () => ({ model: byId("model").value });
const readThink = () => ({ think: byId("think").checked });

/** Return the body of the request that creates a conversation with these settings. */
export function creationBody() {
  const body = { ...readModel(), ...readThink(), ...readTools(), ...readAgents() };
  const prompt = byId("system-prompt").value.trim();
  if (prompt) body.system_prompt = prompt;
  return body;
}

/** Show the settings of a session, or the defaults of a new conversation. */
export function showSettings(session) {
  sessionId = session?.session_id ?? null;
  showProblem("Changes apply to the next message.");
  byId("prompt-file").value = "";
  byId("summarize").hidden = !session;
  showSummary(session?.summary);
  if (!session) {
    choose("tools", toolNames);
    byId("policy").value = "always_confirm";
    choose("agents", []);
    byId("system-prompt").value = "";
    return;
  }
  selectModel(session.model);
  byId("think").checked = Boolean(session.think);
  choose("tools", session.tool_settings.tools);
  byId("policy").value = session.tool_settings.execution_policy;
  choose("agents", session.agent_settings.enabled_agents);
  const prompt = session.messages.find((message) => message.role === "system");
  byId("system-prompt").value = prompt?.content ?? "";
}

function selectModel(name) {
  const known = [...byId("model").options].some((option) => option.value === name);
  if (!known) byId("model").add(new Option(`${name} (not installed)`, name));
  byId("model").value = name;
}

/** Keep the settings when a new conversation is created from them. */
export function useSession(created) {
  sessionId = created;
  byId("summarize").hidden = false;
}

function showSummary(summary) {
  byId("summary").textContent = summary?.summary ?? "This conversation has no summary.";
}

function showProblem(text) {
  byId("settings-status").textContent = text;
}

/** Wait until the server has all changes, so that they apply to the next message. */
export const settingsSaved = () => saving;

function save(sendChange) {
  saving = saving.then(() => sendNow(sendChange));
  return saving;
}

async function sendNow(sendChange) {
  if (!sessionId) return showProblem("These settings apply to the new conversation.");
  try {
    await sendChange(`/sessions/${sessionId}`);
    showProblem("Saved.");
  } catch (error) {
    showProblem(describe(error));
    byId("status").textContent = describe(error);
  }
}

const sendOnChange = (id, read) => { byId(id).onchange = () => save((path) => patch(path, read())); };

async function loadPrompt() {
  const file = byId("prompt-file").value;
  try {
    if (file) byId("system-prompt").value = (await get(`/system-prompts/${encodeURIComponent(file)}`)).content;
  } catch (error) {
    showProblem(describe(error));
  }
}

function savePrompt() {
  const content = byId("system-prompt").value.trim();
  const label = byId("prompt-file").value;
  const body = label ? { content, source_file: label } : { content };
  return save((path) => (content ? put(`${path}/system-prompt`, body) : remove(`${path}/system-prompt`)));
}

async function summarize() {
  byId("summarize").disabled = true;
  showProblem("The model summarizes the conversation …");
  await save(async (path) => showSummary(await post(`${path}/summarize`, {})));
  byId("summarize").disabled = false;
}

async function openSettings() {
  byId("settings").showModal();
  if (!sessionId) return;
  try {
    showSummary(await get(`/sessions/${sessionId}/summary`));  // the server also summarizes on its own
  } catch (error) {
    showProblem(describe(error));
  }
}

export function connectSettings() {
  sendOnChange("model", readModel);
  byId("think").onchange = () => byId("scope").hidden || save((path) => patch(path, readThink()));  // not a comparison's
  sendOnChange("tools", readTools);
  sendOnChange("policy", readTools);
  sendOnChange("agents", readAgents);
  byId("prompt-file").onchange = loadPrompt;
  byId("system-prompt").oninput = () => { byId("prompt-file").value = ""; };
  byId("save-prompt").onclick = savePrompt;
  byId("summarize").onclick = summarize;
  byId("open-settings").onclick = openSettings;
  byId("close-settings").onclick = () => byId("settings").close();
}
