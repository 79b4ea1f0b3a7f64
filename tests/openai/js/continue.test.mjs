// Continue's adapter for OpenAI, with the configuration of docs/how-to/openai-clients.md.
// `CONTINUE_CONFIG` is this configuration. `CALL` is a message to which the model calls the tool `look`.

import assert from "node:assert/strict";
import { test } from "node:test";
import { parseConfigYaml } from "@continuedev/config-yaml";
import { constructLlmApi } from "@continuedev/openai-adapters";

const { models } = parseConfigYaml(process.env.CONTINUE_CONFIG);
const [chat, embed] = ["chat", "embed"].map((role) => {
  const { provider, model, apiBase, apiKey } = models.find(({ roles }) => roles.includes(role));
  return { model, api: constructLlmApi({ provider, apiBase, apiKey }) };
});
const { signal } = new AbortController();
const tools = [
  { type: "function", function: { name: "look", parameters: { type: "object", properties: { at: { type: "string" } } } } },
];

// Return the message of the answer. The parts of a streamed message are joined.
async function complete(request, stream) {
  const body = { model: chat.model, ...request, stream };
  if (!stream) return (await chat.api.chatCompletionNonStream(body, signal)).choices[0].message;
  const message = { role: "assistant", content: "" };
  let usage;
  for await (const chunk of chat.api.chatCompletionStream(body, signal)) {
    const delta = chunk.choices[0]?.delta;
    message.content += delta?.content ?? "";
    for (const { index, ...call } of delta?.tool_calls ?? []) (message.tool_calls ??= [])[index] = call;
    usage = chunk.usage;
  }
  assert.ok(usage.total_tokens > 0, "the last chunk has the token counts");
  return message;
}

for (const stream of [false, true]) {
  const title = stream ? "streamed" : "whole";

  test(`${title}: text`, async () => {
    const { content } = await complete({ messages: [{ role: "user", content: "Hello!" }] }, stream);
    assert.match(content, /Hello!$/);
  });

  test(`${title}: three turns with a tool`, async () => {
    const messages = [];
    for (const turn of [1, 2, 3]) {
      messages.push({ role: "user", content: process.env.CALL });
      messages.push(await complete({ messages, tools }, stream));
      const [call] = messages.at(-1).tool_calls;
      assert.deepEqual([call.function.name, JSON.parse(call.function.arguments)], ["look", { at: "sky" }], `turn ${turn}`);
      messages.push({ role: "tool", tool_call_id: call.id, content: "blue" });
      messages.push(await complete({ messages, tools }, stream));
      assert.notEqual(messages.at(-1).content, "");
    }
  });

  test(`${title}: JSON that matches a schema`, async () => {
    const schema = { type: "object", properties: { a: { type: "string" } }, required: ["a"] };
    const response_format = { type: "json_schema", json_schema: { name: "answer", schema } };
    const { content } = await complete({ messages: [{ role: "user", content: "Hello!" }], response_format }, stream);
    assert.equal(typeof JSON.parse(content).a, "string");
  });

  test(`${title}: an unknown model is an error with status 404`, async () => {
    const request = { model: "nowhere", messages: [{ role: "user", content: "Hello!" }] };
    await assert.rejects(complete(request, stream), { status: 404, code: "model_not_found" });
  });

  test(`${title}: an overloaded model is called again after the requested time`, async () => {
    const began = performance.now();
    const text = `Busy ${stream ? 503 : 429}: Continue`;
    const { content } = await complete({ messages: [{ role: "user", content: text }] }, stream);
    assert.ok(content.endsWith(text));
    assert.ok(performance.now() - began >= 1000);
  });
}

test("text completions, whole and streamed", async () => {
  const body = { model: chat.model, prompt: "Hello!" };
  const { choices } = await chat.api.completionNonStream({ ...body, stream: false }, signal);
  assert.match(choices[0].text, /Hello!$/);
  let text = "";
  for await (const chunk of chat.api.completionStream({ ...body, stream: true }, signal)) text += chunk.choices[0].text;
  assert.equal(text, choices[0].text);
});

test("embeddings of the index", async () => {
  const { data } = await embed.api.embed({ model: embed.model, input: ["one", "two"] });
  assert.deepEqual(data.map(({ embedding }) => embedding.length), [768, 768]);
  const names = (await embed.api.list()).map(({ id }) => id);
  assert.ok(names.includes(`${embed.model}:latest`));
});
