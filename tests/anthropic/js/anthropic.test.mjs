// The official JavaScript client. `MOCHI_URL` is the server. `CALL` is a message to which the model calls the tool `look`.

import assert from "node:assert/strict";
import { test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: process.env.MOCHI_URL, apiKey: "any", maxRetries: 0 });
const look = { name: "look", input_schema: { type: "object", properties: { at: { type: "string" } } } };

async function create(request, stream, options) {
  const body = { model: "mochi", max_tokens: 1000, ...request };
  if (!stream) return client.messages.create(body, options);
  return client.messages.stream(body, options).finalMessage();
}

for (const stream of [false, true]) {
  const title = `messages, ${stream ? "streamed" : "whole"}`;

  test(`${title}: round trip of a tool with thinking`, async () => {
    const messages = [{ role: "user", content: process.env.CALL }];
    const request = { messages, tools: [look], thinking: { type: "enabled", budget_tokens: 1024 } };
    const { content, stop_reason } = await create(request, stream);
    assert.equal(stop_reason, "tool_use");
    assert.deepEqual(content.map(({ type }) => type), ["thinking", "text", "tool_use"]);
    const call = content.at(-1);
    assert.deepEqual([call.name, call.input], ["look", { at: "sky" }]);
    messages.push({ role: "assistant", content });
    messages.push({ role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: "blue" }] });
    const second = await create(request, stream);
    assert.equal(second.stop_reason, "end_turn");
    assert.notEqual(second.content.at(-1).text, "");
    assert.ok(second.usage.input_tokens > 0 && second.usage.output_tokens > 0);
  });

  test(`${title}: an unknown model is an error with status 404`, async () => {
    const request = { model: "nowhere", messages: [{ role: "user", content: "Hello!" }] };
    await assert.rejects(create(request, stream), (error) => {
      assert.ok(error instanceof Anthropic.NotFoundError);
      assert.equal(error.error.error.type, "not_found_error");
      assert.equal(error.requestID, error.error.request_id);
      return true;
    });
  });

  test(`${title}: an overloaded model is called again after the requested time`, async () => {
    const began = performance.now();
    const content = `Busy ${stream ? 503 : 429}: Anthropic`;
    const answer = await create({ messages: [{ role: "user", content }] }, stream, { maxRetries: 2 });
    assert.ok(answer.content[0].text.endsWith(content));
    assert.ok(performance.now() - began >= 1000);
  });
}

test("tokens are counted", async () => {
  const { input_tokens } = await client.messages.countTokens({ model: "mochi", messages: [{ role: "user", content: "Hello!" }] });
  assert.ok(input_tokens > 0);
});
