// mochi-server with two tools, for one suite. `mochi-server` must be on the PATH: `uv run npm test`.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { start } from "../../stub/js/stub.mjs";

const TOOLS = `
def add(a: float, b: float) -> str:
    """Add two numbers."""
    return str(a + b)

def note(text: str) -> str:
    """Write a note."""
    return f"Noted: {text}"

__all__ = ["add", "note"]
__read_only__ = ["add"]
`;

const AGENT = {
  "SKILL.md": "---\ndescription: Helps.\n---\nYou are the helper.\n",
  "helper.py": 'def write(text: str) -> str:\n    """Write a text."""\n    return f"Written: {text}"\n',
  "__init__.py": 'from .helper import write\n__all__ = ["write"]\n',
};

// Start a server that ends with the suite. Return the URL of its API.
export async function startServer(...options) {
  const data = mkdtempSync(join(tmpdir(), "mochi-"));
  mkdirSync(join(data, "tools"));
  writeFileSync(join(data, "tools", "__init__.py"), TOOLS);
  const agent = join(data, "agents", "helper");
  mkdirSync(agent, { recursive: true });
  for (const [name, text] of Object.entries(AGENT)) writeFileSync(join(agent, name), text);
  writeFileSync(join(data, ".mochi-server"), "");
  const common = ["--port", "0", "--data-dir", data, "--log-level", "error"];
  const url = await start("mochi-server", [...common, ...options]);
  after(() => rmSync(data, { recursive: true, force: true }));
  return `${url}/api/v1`;
}

export async function newSession(api) {
  const tool_settings = { tools: ["add", "note"], execution_policy: "confirm_destructive" };
  const agent_settings = { enabled_agents: ["helper"] };
  const body = JSON.stringify({ model: "mochi", tool_settings, agent_settings });
  const response = await fetch(`${api}/sessions`, { method: "POST", body, headers: { "Content-Type": "application/json" } });
  return (await response.json()).session_id;
}

export async function messagesOf(api, session) {
  return (await (await fetch(`${api}/sessions/${session}/messages`)).json()).messages;
}

// Return a message that makes the model send these parts, and two words with labels at the end.
export function instruct(messages, reasoning) {
  const plan = { id_message: "ID", messages: [...messages, { text_message: { length: 2 } }], ...(reasoning && { reasoning: { length: reasoning } }) };
  return `<|instruction_start|>${JSON.stringify(plan)}<|instruction_end|>`;
}

// Return a message that makes the model call the agent, which sends these parts.
export function delegate(messages) {
  const message = instruct([call("agent", { agent: "helper", instruction: instruct(messages) })]);
  const [start, end] = ["<|instruction_start|>", "<|instruction_end|>"];
  const block = message.slice(start.length, -end.length).replaceAll("<|", "\\u003c|");
  return start + block + end;
}

export const call = (name, args) => ({ tool_call: [{ name, args }] });

export async function until(check, seconds = 10) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end; await new Promise((next) => setTimeout(next, 10))) {
    const value = await check();
    if (value) return value;
  }
  throw new Error(`${check} did not become true`);
}
