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
