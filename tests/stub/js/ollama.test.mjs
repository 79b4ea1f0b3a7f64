// Ollama's own wire.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Ollama } from "ollama";
import { startStub } from "./stub.mjs";
import { speaks } from "./wire.mjs";

const client = new Ollama({ host: await startStub() });
const CLOCK = { type: "function", function: { name: "clock", description: "", parameters: { type: "object" } } };

async function hear(text, { stream, tools, model = "mochi" }) {
  const asked = { model, messages: [{ role: "user", content: text }], stream, ...(tools && { tools: [CLOCK] }) };
  const answer = await client.chat(asked);
  const heard = { text: "", reasoning: "", calls: [], chunks: 0 };
  for await (const { message, ...rest } of stream ? answer : [answer]) {
    heard.chunks += 1;
    heard.text += message.content;
    heard.reasoning += message.thinking ?? "";
    heard.calls.push(...(message.tool_calls ?? []).map((call) => ({ name: call.function.name, args: call.function.arguments })));
    heard.finish = rest.done_reason;
    heard.usage = [rest.prompt_eval_count, rest.eval_count];
  }
  return heard;
}

speaks("chat", {
  hear,
  finishes: { stop: "stop", tools: "stop", length: "length" },
  status: (error) => error.status_code,
});

test("generate streams and ends", async () => {
  let text = "";
  let last;
  for await (const chunk of await client.generate({ model: "mochi", prompt: "hello", stream: true })) {
    text += chunk.response;
    last = chunk;
  }
  assert.equal(text, "Hi there, how are you?");
  assert.equal(last.done, true);
});

test("texts are embedded, and models listed, shown and seen loaded", async () => {
  const { embeddings } = await client.embed({ model: "mochi", input: ["one", "two"] });
  assert.deepEqual(embeddings.map((vector) => vector.length), [768, 768]);
  assert.deepEqual((await client.list()).models.map(({ model }) => model), ["mochi:latest"]);
  assert.ok((await client.show({ model: "mochi" })).capabilities.includes("tools"));
  assert.deepEqual((await client.ps()).models.map(({ model }) => model), ["mochi:latest"]);
});
