// The official JavaScript client. `MOCHI_URL` is the server. `CALL` is a message to which the model calls the tool `look`.

import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.env.MOCHI_URL}/v1`, apiKey: "any", maxRetries: 0 });
const tools = [{ type: "function", name: "look", parameters: { type: "object", properties: {} }, strict: false }];

async function respond(request, stream) {
  if (!stream) return client.responses.create({ model: "mochi", ...request });
  return client.responses.stream({ model: "mochi", ...request }).finalResponse();
}

const look = { type: "function", function: { name: "look", parameters: { type: "object", properties: { at: { type: "string" } } } } };

async function complete(request, stream, options) {
  const body = { model: "mochi", ...request };
  if (!stream) return client.chat.completions.create(body, options);
  return client.chat.completions.stream(body, options).finalChatCompletion();
}

for (const stream of [false, true]) {
  const title = `chat completions, ${stream ? "streamed" : "whole"}`;

  test(`${title}: round trip of a tool`, async () => {
    const messages = [{ role: "user", content: process.env.CALL }];
    const { message, finish_reason } = (await complete({ messages, tools: [look] }, stream)).choices[0];
    assert.equal(finish_reason, "tool_calls");
    const [call] = message.tool_calls;
    assert.deepEqual([call.function.name, JSON.parse(call.function.arguments)], ["look", { at: "sky" }]);
    messages.push(message, { role: "tool", tool_call_id: call.id, content: "blue" });
    const second = await complete({ messages, tools: [look] }, stream);
    assert.notEqual(second.choices[0].message.content, "");
  });

  test(`${title}: JSON that matches a schema`, async () => {
    const schema = { type: "object", properties: { a: { type: "string" } }, required: ["a"], additionalProperties: false };
    const response_format = { type: "json_schema", json_schema: { name: "answer", schema, strict: true } };
    const messages = [{ role: "user", content: "Hello!" }];
    const { choices } = await complete({ messages, response_format }, stream);
    assert.equal(typeof JSON.parse(choices[0].message.content).a, "string");
  });

  test(`${title}: an unknown model is an error with status 404`, async () => {
    const request = { model: "nowhere", messages: [{ role: "user", content: "Hello!" }] };
    await assert.rejects(complete(request, stream), { status: 404, code: "model_not_found" });
  });

  test(`${title}: an overloaded model is called again after the requested time`, async () => {
    const began = performance.now();
    const content = `Busy ${stream ? 503 : 429}: Node`;
    const { choices } = await complete({ messages: [{ role: "user", content }] }, stream, { maxRetries: 2 });
    assert.ok(choices[0].message.content.endsWith(content));
    assert.ok(performance.now() - began >= 1000);
  });
}

for (const stream of [false, true]) {
  test(`responses, ${stream ? "streamed" : "whole"}: round trip of a tool`, async () => {
    const input = [{ role: "user", content: process.env.CALL }];
    const first = await respond({ input, tools }, stream);
    assert.deepEqual(first.output.map(({ type, name }) => [type, name]), [["function_call", "look"]]);
    input.push(...first.output, { type: "function_call_output", call_id: first.output[0].call_id, output: "blue" });
    const second = await respond({ input, tools }, stream);
    assert.notEqual(second.output_text, "");
  });
}

test("text completions and embeddings", async () => {
  const completion = await client.completions.create({ model: "mochi", prompt: "Hello!" });
  assert.match(completion.choices[0].text, /Hello!$/);
  const { data } = await client.embeddings.create({ model: "mochi-embed", input: ["one", "two"] });
  assert.deepEqual(data.map(({ embedding }) => embedding.length), [768, 768]);
});
