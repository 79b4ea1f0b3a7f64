// Gemini's API with the client's defaults.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError, GoogleGenAI } from "@google/genai";
import { startStub } from "./stub.mjs";
import { testApi } from "./wire.mjs";

const client = new GoogleGenAI({ apiKey: "secret", httpOptions: { baseUrl: await startStub() } });
const CLOCK = { name: "clock", parametersJsonSchema: { type: "object" } };

async function sendMessage(text, { stream, tools, model = "mochi" }) {
  const config = {
    thinkingConfig: { includeThoughts: true },
    ...(tools && { tools: [{ functionDeclarations: [CLOCK] }] }),
  };
  const request = { model, contents: text, config };
  const answer = stream ? await client.models.generateContentStream(request) : await client.models.generateContent(request);
  const received = { text: "", reasoning: "", calls: [], chunks: 0 };
  for await (const { candidates: [candidate], usageMetadata } of stream ? answer : [answer]) {
    received.chunks += 1;
    for (const part of candidate.content?.parts ?? []) {
      if (part.functionCall) received.calls.push({ name: part.functionCall.name, args: part.functionCall.args });
      else received[part.thought ? "reasoning" : "text"] += part.text;
    }
    received.finish = candidate.finishReason;
    received.usage = [usageMetadata?.promptTokenCount, usageMetadata?.candidatesTokenCount];
  }
  return received;
}

testApi("generateContent", {
  sendMessage,
  finishes: { stop: "STOP", tools: "STOP", length: "MAX_TOKENS" },
  status: (error) => (error instanceof ApiError ? error.status : undefined),
});

test("a chat sends its history", async () => {
  const chat = client.chats.create({ model: "mochi" });
  assert.equal((await chat.sendMessage({ message: "hello" })).text, "Hi there, how are you?");
  assert.equal((await chat.sendMessage({ message: "and you?" })).text, "and you?");
  assert.equal(chat.getHistory().length, 4);
});

test("tokens are counted, texts embedded, and models listed", async () => {
  assert.ok((await client.models.countTokens({ model: "mochi", contents: "hello" })).totalTokens > 0);
  const { embeddings } = await client.models.embedContent({ model: "mochi", contents: ["one", "two"] });
  assert.deepEqual(embeddings.map(({ values }) => values.length), [768, 768]);
  const names = [];
  for await (const { name } of await client.models.list()) names.push(name);
  assert.deepEqual(names, ["models/mochi"]);
});
