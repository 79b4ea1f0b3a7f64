// OpenAI's API: chat completions, responses, text completions, embeddings and models.

import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { startStub } from "./stub.mjs";
import { testApi } from "./wire.mjs";

const client = new OpenAI({ baseURL: `${await startStub()}/v1`, apiKey: "sk-secret", maxRetries: 0 });
const CLOCK = { name: "clock", description: "", parameters: { type: "object" } };
const status = (error) => error.status;

function read({ name, arguments: args }) {
  return { name, args: JSON.parse(args) };
}

async function sendWholeChat(request) {
  const { choices: [{ message, finish_reason }], usage } = await client.chat.completions.create(request);
  return {
    text: message.content ?? "",
    reasoning: message.reasoning ?? "",
    calls: (message.tool_calls ?? []).map((call) => read(call.function)),
    finish: finish_reason,
    usage: [usage.prompt_tokens, usage.completion_tokens],
  };
}

async function sendChat(text, { stream, tools, model = "mochi" }) {
  const request = {
    model,
    messages: [{ role: "user", content: text }],
    ...(tools && { tools: [{ type: "function", function: CLOCK }] }),
  };
  if (!stream) return sendWholeChat(request);
  const received = { text: "", reasoning: "", chunks: 0 };
  const calls = [];
  for await (const chunk of await client.chat.completions.create({
    ...request,
    stream: true,
    stream_options: { include_usage: true },
  })) {
    received.chunks += 1;
    if (chunk.usage) received.usage = [chunk.usage.prompt_tokens, chunk.usage.completion_tokens];
    for (const { delta, finish_reason } of chunk.choices) {
      received.text += delta.content ?? "";
      received.reasoning += delta.reasoning ?? "";
      received.finish = finish_reason;
      for (const call of delta.tool_calls ?? []) {
        calls[call.index] ??= { name: call.function.name, arguments: "" };
        calls[call.index].arguments += call.function.arguments;
      }
    }
  }
  return { ...received, calls: calls.map(read) };
}

function parse({ output, output_text, usage, status, incomplete_details }) {
  const summaries = output.filter(({ type }) => type === "reasoning").flatMap(({ summary }) => summary);
  return {
    text: output_text,
    reasoning: summaries.map(({ text }) => text).join(""),
    calls: output.filter(({ type }) => type === "function_call").map(read),
    finish: incomplete_details?.reason ?? status,
    usage: [usage.input_tokens, usage.output_tokens],
  };
}

async function sendResponse(text, { stream, tools, model = "mochi" }) {
  const request = { model, input: text, ...(tools && { tools: [{ type: "function", ...CLOCK }] }) };
  if (!stream) return parse(await client.responses.create(request));
  const received = { text: "", reasoning: "", chunks: 0 };
  for await (const event of await client.responses.create({ ...request, stream: true })) {
    received.chunks += 1;
    if (event.type === "response.output_text.delta") received.text += event.delta;
    if (event.type === "response.reasoning_summary_text.delta") received.reasoning += event.delta;
    if (event.type === "response.failed") throw new Error(event.response.error.message);
    if (event.response?.usage) {
      const texts = event.response.output.flatMap(({ type, content }) => (type === "message" ? content : []));
      received.end = parse({ output_text: texts.map(({ text }) => text).join(""), ...event.response });
    }
  }
  assert.deepEqual([received.end.text, received.end.reasoning], [received.text, received.reasoning]);
  return { ...received.end, chunks: received.chunks };
}

testApi("chat completions", {
  sendMessage: sendChat,
  finishes: { stop: "stop", tools: "tool_calls", length: "length" },
  status,
});

testApi("responses", {
  sendMessage: sendResponse,
  finishes: { stop: "completed", tools: "completed", length: "max_output_tokens" },
  status,
});

test("a rate limit error has the header Retry-After", async () => {
  await assert.rejects(sendChat("refuse", { stream: false }), (error) => {
    assert.ok(error instanceof OpenAI.RateLimitError);
    assert.equal(error.headers.get("retry-after"), "2");
    return true;
  });
});

test("the client's tool runner calls the tool and reads the answer", async () => {
  const zones = [];
  const run = client.chat.completions.runTools({
    model: "mochi",
    messages: [{ role: "user", content: "call" }],
    tools: [
      {
        type: "function",
        function: { ...CLOCK, parse: JSON.parse, function: ({ zone }) => (zones.push(zone), "12:00") },
      },
    ],
  });
  assert.equal(await run.finalContent(), "One moment.");
  assert.deepEqual(zones, ["UTC"]);
});

test("text is completed, texts are embedded, and models listed", async () => {
  const completed = await client.completions.create({ model: "mochi", prompt: "hello" });
  assert.equal(completed.choices[0].text, "Hi there, how are you?");
  const { data } = await client.embeddings.create({ model: "mochi", input: ["one", "two"], dimensions: 256 });
  assert.deepEqual(data.map(({ embedding }) => embedding.length), [256, 256]);
  assert.deepEqual((await client.models.list()).data.map(({ id }) => id), ["mochi"]);
});
