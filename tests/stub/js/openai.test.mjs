// OpenAI's chat completions, responses, completions, embeddings and models.

import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { startStub } from "./stub.mjs";
import { speaks } from "./wire.mjs";

const client = new OpenAI({ baseURL: `${await startStub()}/v1`, apiKey: "sk-secret", maxRetries: 0 });
const CLOCK = { name: "clock", description: "", parameters: { type: "object" } };
const status = (error) => error.status;

function read({ name, arguments: args }) {
  return { name, args: JSON.parse(args) };
}

async function hearWholeChat(asked) {
  const { choices: [{ message, finish_reason }], usage } = await client.chat.completions.create(asked);
  return {
    text: message.content ?? "",
    reasoning: message.reasoning ?? "",
    calls: (message.tool_calls ?? []).map((call) => read(call.function)),
    finish: finish_reason,
    usage: [usage.prompt_tokens, usage.completion_tokens],
  };
}

async function hearChat(text, { stream, tools, model = "mochi" }) {
  const asked = {
    model,
    messages: [{ role: "user", content: text }],
    ...(tools && { tools: [{ type: "function", function: CLOCK }] }),
  };
  if (!stream) return hearWholeChat(asked);
  const heard = { text: "", reasoning: "", chunks: 0 };
  const calls = [];
  for await (const chunk of await client.chat.completions.create({
    ...asked,
    stream: true,
    stream_options: { include_usage: true },
  })) {
    heard.chunks += 1;
    if (chunk.usage) heard.usage = [chunk.usage.prompt_tokens, chunk.usage.completion_tokens];
    for (const { delta, finish_reason } of chunk.choices) {
      heard.text += delta.content ?? "";
      heard.reasoning += delta.reasoning ?? "";
      heard.finish = finish_reason;
      for (const call of delta.tool_calls ?? []) {
        calls[call.index] ??= { name: call.function.name, arguments: "" };
        calls[call.index].arguments += call.function.arguments;
      }
    }
  }
  return { ...heard, calls: calls.map(read) };
}

function put({ output, output_text, usage, status, incomplete_details }) {
  const summaries = output.filter(({ type }) => type === "reasoning").flatMap(({ summary }) => summary);
  return {
    text: output_text,
    reasoning: summaries.map(({ text }) => text).join(""),
    calls: output.filter(({ type }) => type === "function_call").map(read),
    finish: incomplete_details?.reason ?? status,
    usage: [usage.input_tokens, usage.output_tokens],
  };
}

async function hearResponse(text, { stream, tools, model = "mochi" }) {
  const asked = { model, input: text, ...(tools && { tools: [{ type: "function", ...CLOCK }] }) };
  if (!stream) return put(await client.responses.create(asked));
  const heard = { text: "", reasoning: "", chunks: 0 };
  for await (const event of await client.responses.create({ ...asked, stream: true })) {
    heard.chunks += 1;
    if (event.type === "response.output_text.delta") heard.text += event.delta;
    if (event.type === "response.reasoning_summary_text.delta") heard.reasoning += event.delta;
    if (event.type === "response.failed") throw new Error(event.response.error.message);
    if (event.response?.usage) {
      const texts = event.response.output.flatMap(({ type, content }) => (type === "message" ? content : []));
      heard.end = put({ output_text: texts.map(({ text }) => text).join(""), ...event.response });
    }
  }
  assert.deepEqual([heard.end.text, heard.end.reasoning], [heard.text, heard.reasoning]);
  return { ...heard.end, chunks: heard.chunks };
}

speaks("chat completions", {
  hear: hearChat,
  finishes: { stop: "stop", tools: "tool_calls", length: "length" },
  status,
});

speaks("responses", {
  hear: hearResponse,
  finishes: { stop: "completed", tools: "completed", length: "max_output_tokens" },
  status,
});

test("a refusal says when to come again", async () => {
  await assert.rejects(hearChat("refuse", { stream: false }), (error) => {
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
