// Anthropic's Messages API.

import assert from "node:assert/strict";
import { test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { startStub } from "./stub.mjs";
import { testApi } from "./wire.mjs";

const client = new Anthropic({ baseURL: await startStub(), apiKey: "sk-secret", maxRetries: 0 });
const CLOCK = { name: "clock", input_schema: { type: "object" } };

async function sendMessage(text, { stream, tools, model = "mochi" }) {
  const request = {
    model,
    max_tokens: 1000,
    messages: [{ role: "user", content: text }],
    ...(tools && { tools: [CLOCK] }),
  };
  let chunks = 0;
  const message = stream
    ? await client.messages.stream(request).on("streamEvent", () => (chunks += 1)).finalMessage()
    : await client.messages.create(request);
  const all = (type) => message.content.filter((block) => block.type === type);
  return {
    text: all("text").map((block) => block.text).join(""),
    reasoning: all("thinking").map((block) => block.thinking).join(""),
    calls: all("tool_use").map(({ name, input }) => ({ name, args: input })),
    finish: message.stop_reason,
    usage: [message.usage.input_tokens, message.usage.output_tokens],
    chunks,
  };
}

testApi("messages", {
  sendMessage,
  finishes: { stop: "end_turn", tools: "tool_use", length: "max_tokens" },
  status: (error) => error.status,
});

test("a rate limit error has the client's class and Retry-After", async () => {
  await assert.rejects(sendMessage("refuse", { stream: false }), (error) => {
    assert.ok(error instanceof Anthropic.RateLimitError);
    assert.equal(error.headers.get("retry-after"), "2");
    assert.equal(error.error.error.type, "rate_limit_error");
    return true;
  });
});

test("a tool's result is answered without another call", async () => {
  const request = [{ role: "user", content: "call" }];
  const first = await client.messages.create({ model: "mochi", max_tokens: 1000, tools: [CLOCK], messages: request });
  const { id } = first.content.find(({ type }) => type === "tool_use");
  const result = { type: "tool_result", tool_use_id: id, content: "12:00" };
  const messages = [...request, { role: "assistant", content: first.content }, { role: "user", content: [result] }];
  const second = await client.messages.create({ model: "mochi", max_tokens: 1000, tools: [CLOCK], messages });
  assert.equal(second.stop_reason, "end_turn");
});

test("tokens are counted, and models listed", async () => {
  const counted = await client.messages.countTokens({ model: "mochi", messages: [{ role: "user", content: "hello" }] });
  assert.ok(counted.input_tokens > 0);
  assert.deepEqual((await client.models.list()).data.map(({ id }) => id), ["mochi"]);
});

test("max_tokens is required", async () => {
  const request = { model: "mochi", messages: [{ role: "user", content: "hello" }] };
  await assert.rejects(client.messages.create(request), Anthropic.BadRequestError);
});
