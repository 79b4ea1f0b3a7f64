// Tests that all APIs share.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

// `sendMessage(text, {stream, tools})` resolves to {text, reasoning, calls, finish, usage: [input, output], chunks} or rejects;
// `finishes` has the finish reasons of the API; `status(error)` returns the HTTP status of a client's error.
export function testApi(wire, { sendMessage, finishes, status }) {
  for (const stream of [false, true]) {
    describe(`${wire}, ${stream ? "streamed" : "whole"}`, () => {
      test("text arrives as it was written", async () => {
        const received = await sendMessage("hello", { stream });
        assert.equal(received.text, "Hi there, how are you?");
        assert.equal(received.finish, finishes.stop);
        assert.deepEqual(received.calls, []);
        if (stream) assert.ok(received.chunks >= 3);
      });

      test("other characters than ASCII arrive unchanged", async () => {
        assert.equal((await sendMessage("日本語 🍡 naïve", { stream })).text, "日本語 🍡 naïve");
      });

      test("reasoning is separate from the text", async () => {
        const { text, reasoning } = await sendMessage("think", { stream });
        assert.deepEqual({ text, reasoning }, { text: "I see.", reasoning: "Let me see." });
      });

      test("a tool is called with its arguments", async () => {
        const { text, calls, finish } = await sendMessage("call", { stream, tools: true });
        assert.equal(text, "One moment.");
        assert.deepEqual(calls, [{ name: "clock", args: { zone: "UTC", digits: 2 } }]);
        assert.equal(finish, finishes.tools);
      });

      test("usage is that of the configuration", async () => {
        assert.deepEqual((await sendMessage("count", { stream })).usage, [11, 7]);
      });

      test("a reply at the length limit has its finish reason", async () => {
        const { text, finish } = await sendMessage("cut off", { stream });
        assert.deepEqual({ text, finish }, { text: "Too lon", finish: finishes.length });
      });

      for (const [text, code, message] of [
        ["refuse", 429, /Come again later\./],
        ["break", 500, /Something broke\./],
      ]) {
        test(`a ${code} is raised as the client's own error`, async () => {
          await assert.rejects(sendMessage(text, { stream }), (error) => {
            assert.equal(status(error), code);
            assert.match(error.message, message);
            return true;
          });
        });
      }

      test("an unknown model is a 404", async () => {
        await assert.rejects(sendMessage("hello", { stream, model: "nobody" }), (error) => status(error) === 404);
      });

      test("a failure in mid-stream is raised", async () => {
        await assert.rejects(sendMessage("fail midway", { stream }), /Something broke\./);
      });

      test("sixteen concurrent replies do not mix", async () => {
        const texts = Array.from({ length: 16 }, (_, number) => `this is number ${number}`);
        const received = await Promise.all(texts.map((text) => sendMessage(text, { stream })));
        assert.deepEqual(received.map(({ text }) => text), texts);
      });
    });
  }
}
