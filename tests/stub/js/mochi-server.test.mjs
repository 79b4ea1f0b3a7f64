// OpenAI-compatible API of mochi-server: sessions of five turns with tools of the client and of the server.

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import OpenAI from "openai";
import { start } from "./stub.mjs";

const ADD = `
def add(a: float, b: float) -> str:
    """Add two numbers."""
    return str(a + b)

__all__ = ["add"]
__read_only__ = ["add"]
`;
const LOOK = { type: "function", function: { name: "look", parameters: { type: "object" } } };

const data = mkdtempSync(join(tmpdir(), "mochi-"));
mkdirSync(join(data, "tools"));
writeFileSync(join(data, "tools", "__init__.py"), ADD);
const options = ["--test-mode", "--stub-speed", "0", "--port", "0", "--data-dir", data, "--log-level", "warning"];
const url = await start("mochi-server", options);
after(() => rmSync(data, { recursive: true }));
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "any", maxRetries: 0 });

// Return a message that instructs the model to call a tool and then to send two words between labels.
function calling(name, args, label) {
  const messages = [{ tool_call: [{ name, args }] }, { text_message: { length: 2 } }];
  return `<|instruction_start|>${JSON.stringify({ id_message: label, messages })}<|instruction_end|>`;
}

async function newSession() {
  const body = JSON.stringify({ model: "mochi" });
  const headers = { "Content-Type": "application/json" };
  return (await (await fetch(`${url}/api/v1/sessions`, { method: "POST", body, headers })).json()).session_id;
}

async function rolesOf(session) {
  const { messages } = await (await fetch(`${url}/api/v1/sessions/${session}/messages`)).json();
  return messages.map(({ role }) => role);
}

async function ask(messages, { stream, headers, ...asks }) {
  const request = { model: "mochi", messages, ...asks };
  const answer = stream
    ? await client.chat.completions.stream(request, { headers }).finalChatCompletion()
    : await client.chat.completions.create(request, { headers });
  return answer.choices[0];
}

for (const stream of [false, true]) {
  test(`five turns with tools of the client, ${stream ? "streamed" : "whole"}`, async () => {
    const session = await newSession();
    const asks = { stream, headers: { "X-Mochi-Session": session }, tools: [LOOK] };
    const messages = [];
    for (let turn = 0; turn < 5; turn++) {
      messages.push({ role: "user", content: calling("look", { at: turn }, `T${turn}`) });
      const called = await ask(messages, asks);
      assert.equal(called.finish_reason, "tool_calls");
      const [call] = called.message.tool_calls;
      assert.deepEqual(JSON.parse(call.function.arguments), { at: turn });
      messages.push(called.message, { role: "tool", tool_call_id: call.id, content: "seen" });
      const { message, finish_reason } = await ask(messages, asks);
      assert.equal(finish_reason, "stop");
      assert.match(message.content, new RegExp(`^T${turn} .* T${turn}$`));
      messages.push(message);
    }
    assert.deepEqual(await rolesOf(session), Array(5).fill(["user", "assistant", "tool", "assistant"]).flat());
  });

  test(`five turns with tools of the server, ${stream ? "streamed" : "whole"}`, async () => {
    const session = await newSession();
    await fetch(`${url}/api/v1/sessions/${session}`, {
      method: "PATCH",
      body: JSON.stringify({ tool_settings: { tools: ["add"], execution_policy: "confirm_destructive" } }),
      headers: { "Content-Type": "application/json" },
    });
    for (let turn = 0; turn < 5; turn++) {
      const messages = [{ role: "user", content: calling("add", { a: turn, b: 1 }, `T${turn}`) }];
      const { message } = await ask(messages, { stream, metadata: { session_id: session } });
      assert.match(message.content, new RegExp(`^T${turn} .* T${turn}$`));
    }
    assert.equal((await rolesOf(session)).length, 20);
  });
}

test("without a session nothing is stored", async () => {
  const sessions = async () => (await fetch(`${url}/api/v1/sessions`)).text();
  const before = await sessions();
  const { message } = await ask([{ role: "user", content: calling("add", { a: 1, b: 2 }, "ID") }], {
    headers: { "X-Mochi-Tools": "add" },
  });
  assert.match(message.content, /^ID/);
  assert.equal(await sessions(), before);
});

test("errors have the classes of the client", async () => {
  const hello = [{ role: "user", content: "Hello!" }];
  await assert.rejects(ask(hello, { headers: { "X-Mochi-Session": "0123456789" } }), OpenAI.NotFoundError);
  await assert.rejects(ask(hello, { n: 2 }), (error) => error instanceof OpenAI.BadRequestError && error.param === "n");
  const names = [];
  for await (const { id } of client.models.list()) names.push(id);
  assert.ok(names.includes("mochi:latest"));
});
