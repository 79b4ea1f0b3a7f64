// The AI SDK with its default provider (`/v1/responses`), its text completions and its provider for compatible servers.
// `MOCHI_URL` is the server. `CALL` is a message to which the model answers with a call of the tool `look`.

import assert from "node:assert/strict";
import { test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateText, jsonSchema, Output, stepCountIs, streamText, tool } from "ai";

const baseURL = `${process.env.MOCHI_URL}/v1`;
const CALL = process.env.CALL;

// As in a new project: no option of the provider is set, except the address.
const openai = createOpenAI({ baseURL, apiKey: "any" });
const compatible = createOpenAICompatible({ name: "mochi", baseURL });
const compatibleWithSchemas = createOpenAICompatible({ name: "mochi", baseURL, supportsStructuredOutputs: true });

const look = tool({
  description: "Look somewhere.",
  inputSchema: jsonSchema({ type: "object", properties: { at: { type: "string" } } }),
  execute: async ({ at }) => `seen ${at}`,
});

async function run(request, stream) {
  if (!stream) return generateText({ maxRetries: 0, ...request });
  let failure;
  const result = streamText({ maxRetries: 0, ...request, onError: ({ error }) => (failure = error) });
  await result.consumeStream();
  if (failure) throw failure;
  return { text: await result.text, steps: await result.steps, response: await result.response, usage: await result.usage };
}

for (const [name, model] of [["responses", openai("mochi")], ["compatible", compatible("mochi")]]) {
  for (const stream of [false, true]) {
    const title = `${name}, ${stream ? "streamed" : "whole"}`;

    test(`${title}: text and tokens`, async () => {
      const { text, usage } = await run({ model, system: "Be kind.", prompt: "Hello!" }, stream);
      assert.match(text, /Hello!$/);
      assert.ok(stream && name === "compatible" || usage.inputTokens > 0);
    });

    test(`${title}: three turns with a tool`, async () => {
      const messages = [];
      for (const turn of [1, 2, 3]) {
        messages.push({ role: "user", content: CALL });
        const { steps, response } = await run({ model, messages, tools: { look }, stopWhen: stepCountIs(3) }, stream);
        assert.deepEqual(steps[0].toolResults.map(({ output }) => output), ["seen sky"], `turn ${turn}`);
        assert.equal(steps.length, 2);
        messages.push(...response.messages);
      }
    });

    test(`${title}: an overloaded model is called again after the requested time`, async () => {
      const began = performance.now();
      const prompt = `Busy ${stream ? 503 : 429}: ${name}`;
      const { text } = await run({ model, prompt, maxRetries: 2 }, stream);
      assert.ok(text.endsWith(prompt));
      assert.ok(performance.now() - began >= 1000);
    });
  }
}

for (const [name, model] of [["responses", openai("mochi")], ["compatible", compatibleWithSchemas("mochi")]]) {
  test(`${name}: JSON that matches a schema`, async () => {
    const schema = jsonSchema({ type: "object", properties: { a: { type: "string" } }, required: ["a"], additionalProperties: false });
    const { output } = await generateText({ model, prompt: "Hello!", output: Output.object({ schema }) });
    assert.equal(typeof output.a, "string");
  });
}

test("text completions", async () => {
  for (const stream of [false, true]) {
    const { text } = await run({ model: openai.completion("mochi"), prompt: "Hello!" }, stream);
    assert.match(text, /Hello!/);
  }
});

test("embeddings", async () => {
  const { embeddings, usage } = await embedMany({ model: openai.embedding("mochi-embed"), values: ["one", "two"] });
  assert.deepEqual(embeddings.map((vector) => vector.length), [768, 768]);
  assert.ok(usage.tokens > 0);
});

test("an unknown model is an error with status 404", async () => {
  for (const stream of [false, true]) {
    await assert.rejects(run({ model: openai("nowhere"), prompt: "Hello!" }, stream), (error) => {
      return error.statusCode === 404 && error.message.includes("nowhere");
    });
  }
});
