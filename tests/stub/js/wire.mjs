// What holds on every wire, told in words that all of them share.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

// `hear(text, {stream, tools})` resolves to {text, reasoning, calls, finish, usage: [input, output], chunks} or rejects;
// `finishes` names a wire's ends; `status(error)` is the HTTP status that a client's error tells.
export function speaks(wire, { hear, finishes, status }) {
  for (const stream of [false, true]) {
    describe(`${wire}, ${stream ? "streamed" : "whole"}`, () => {
      test("text arrives as it was written", async () => {
        const heard = await hear("hello", { stream });
        assert.equal(heard.text, "Hi there, how are you?");
        assert.equal(heard.finish, finishes.stop);
        assert.deepEqual(heard.calls, []);
        if (stream) assert.ok(heard.chunks >= 3);
      });

      test("what is no ASCII arrives unharmed", async () => {
        assert.equal((await hear("日本語 🍡 naïve", { stream })).text, "日本語 🍡 naïve");
      });

      test("reasoning stays beside the text", async () => {
        const { text, reasoning } = await hear("think", { stream });
        assert.deepEqual({ text, reasoning }, { text: "I see.", reasoning: "Let me see." });
      });

      test("a tool is called with its arguments", async () => {
        const { text, calls, finish } = await hear("call", { stream, tools: true });
        assert.equal(text, "One moment.");
        assert.deepEqual(calls, [{ name: "clock", args: { zone: "UTC", digits: 2 } }]);
        assert.equal(finish, finishes.tools);
      });

      test("usage is what the configuration says", async () => {
        assert.deepEqual((await hear("count", { stream })).usage, [11, 7]);
      });

      test("a reply that grew too long says so", async () => {
        const { text, finish } = await hear("cut off", { stream });
        assert.deepEqual({ text, finish }, { text: "Too lon", finish: finishes.length });
      });

      for (const [text, code, message] of [
        ["refuse", 429, /Come again later\./],
        ["break", 500, /Something broke\./],
      ]) {
        test(`a ${code} is raised as the client's own error`, async () => {
          await assert.rejects(hear(text, { stream }), (error) => {
            assert.equal(status(error), code);
            assert.match(error.message, message);
            return true;
          });
        });
      }

      test("a model that is not there is a 404", async () => {
        await assert.rejects(hear("hello", { stream, model: "nobody" }), (error) => status(error) === 404);
      });

      test("a failure in mid-stream is raised", async () => {
        await assert.rejects(hear("fail midway", { stream }), /Something broke\./);
      });

      test("sixteen at once do not mix", async () => {
        const texts = Array.from({ length: 16 }, (_, number) => `this is number ${number}`);
        const heard = await Promise.all(texts.map((text) => hear(text, { stream })));
        assert.deepEqual(heard.map(({ text }) => text), texts);
      });
    });
  }
}
