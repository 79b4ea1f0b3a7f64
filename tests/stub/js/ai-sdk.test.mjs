// The AI SDK with required tool calls, on chat completions and responses, with the packaged models.

import assert from "node:assert/strict";
import { test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { start } from "./stub.mjs";

const url = await start("mochi-stub", ["run", "--port", "0", "--speed", "0", "--log-level", "warning"]);
const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: "sk-secret" });
const models = { chat: openai.chat("mochi"), responses: openai.responses("mochi") };
const city = z.object({ name: z.string().min(2), inhabitants: z.number().int().min(1000) });
const tools = {
  now: tool({ inputSchema: z.object({}), execute: async () => "noon" }),
  describe: tool({ inputSchema: city, execute: async ({ name }) => `${name} is a city` }),
};

for (const [api, model] of Object.entries(models)) {
  const request = { model, tools, prompt: "Describe a city.", maxRetries: 0 };

  test(`${api}: "required" calls an offered tool`, async () => {
    const { toolCalls, finishReason } = await generateText({ ...request, toolChoice: "required" });
    assert.deepEqual([toolCalls.map(({ toolName }) => toolName), finishReason], [["now"], "tool-calls"]);
  });

  test(`${api}: a named tool is called with valid arguments`, async () => {
    const toolChoice = { type: "tool", toolName: "describe" };
    const { toolResults: [result] } = await generateText({ ...request, toolChoice });
    assert.equal(result.output, `${city.parse(result.input).name} is a city`);
  });

  test(`${api}: a required call is streamed`, async () => {
    const result = streamText({ ...request, toolChoice: "required", stopWhen: stepCountIs(2) });
    await result.consumeStream();
    const names = (await result.steps).flatMap(({ toolCalls }) => toolCalls.map(({ toolName }) => toolName));
    assert.deepEqual(names, ["now", "describe"]);
  });

  test(`${api}: an object has the requested schema`, async () => {
    const { output } = await generateText({ model, prompt: "Describe a city.", output: Output.object({ schema: city }) });
    city.parse(output);
  });
}
