// Ollama's API.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Ollama } from "ollama";
import { startStub } from "./stub.mjs";
import { testApi } from "./wire.mjs";

const client = new Ollama({ host: await startStub() });
const CLOCK = { type: "function", function: { name: "clock", description: "", parameters: { type: "object" } } };

async function sendMessage(text, { stream, tools, model = "mochi" }) {
  const request = { model, messages: [{ role: "user", content: text }], stream, ...(tools && { tools: [CLOCK] }) };
  const answer = await client.chat(request);
  const received = { text: "", reasoning: "", calls: [], chunks: 0 };
  for await (const { message, ...rest } of stream ? answer : [answer]) {
    received.chunks += 1;
    received.text += message.content;
    received.reasoning += message.thinking ?? "";
    received.calls.push(...(message.tool_calls ?? []).map((call) => ({ name: call.function.name, args: call.function.arguments })));
    received.finish = rest.done_reason;
    received.usage = [rest.prompt_eval_count, rest.eval_count];
  }
  return received;
}

testApi("chat", {
  sendMessage,
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

test("texts are embedded, and models are listed, shown and loaded", async () => {
  const { embeddings } = await client.embed({ model: "mochi", input: ["one", "two"] });
  assert.deepEqual(embeddings.map((vector) => vector.length), [768, 768]);
  assert.deepEqual((await client.list()).models.map(({ model }) => model), ["mochi:latest"]);
  assert.ok((await client.show({ model: "mochi" })).capabilities.includes("tools"));
  assert.deepEqual((await client.ps()).models.map(({ model }) => model), ["mochi:latest"]);
});
