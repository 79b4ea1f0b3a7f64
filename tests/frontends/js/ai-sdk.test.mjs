// `useChat` of the AI SDK without React: its class `Chat` with the default transport, in the two current major versions.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import * as ai7 from "ai";
import * as ai6 from "ai-6";
import { Chat as Chat7 } from "@ai-sdk/react";
import { Chat as Chat6 } from "@ai-sdk/react-6";
import { build } from "esbuild";
import { startStub } from "../../stub/js/stub.mjs";
import { call, delegate, instruct, messagesOf, newSession, startServer, until } from "./server.mjs";

const api = await startServer("--ollama-host", await startStub());
const slow = await startServer("--test-mode", "--stub-speed", "1");
const NOTE = instruct([call("note", { text: "milk" })]);

// The function `history` of the React example.
async function historyOf(server, session) {
  const entry = fileURLToPath(new URL("../../../docs/examples/react/src/history.ts", import.meta.url));
  const define = { "import.meta.env.VITE_MOCHI_SERVER": JSON.stringify(new URL(server).origin) };
  const { outputFiles } = await build({ entryPoints: [entry], bundle: true, write: false, format: "esm", define });
  return (await import(`data:text/javascript,${encodeURIComponent(outputFiles[0].text)}`)).history(session);
}

for (const [name, ai, Chat] of [["6", ai6, Chat6], ["7", ai7, Chat7]]) {
  describe(`AI SDK ${name}`, () => {
    const { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses, isToolUIPart } = ai;
    const textOf = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("|");
    const toolsOf = (message) => message.parts.filter(isToolUIPart);

    async function newChat({ server = api, session, ...options } = {}) {
      session ??= await newSession(server);
      const transport = new DefaultChatTransport({ api: `${server}/chat/${session}/ai-sdk`, ...options });
      const sendAutomaticallyWhen = lastAssistantMessageIsCompleteWithApprovalResponses;
      return { session, chat: new Chat({ id: "my chat", transport, sendAutomaticallyWhen }) };
    }

    // Wait until the chat waits for the decision of the user, and return the tool call.
    async function requested(chat) {
      return until(() => chat.status === "ready" && toolsOf(chat.lastMessage).find((part) => part.state === "approval-requested"));
    }

    test("text and reasoning", async () => {
      const { chat } = await newChat({ body: { think: true } });
      await chat.sendMessage({ text: instruct([], 4) });
      assert.equal(chat.error, undefined);
      assert.deepEqual(chat.lastMessage.parts.map((part) => part.type), ["step-start", "reasoning", "text"]);
      assert.match(textOf(chat.lastMessage), /^ID .* ID$/);
      assert.equal(chat.lastMessage.metadata.model, "mochi");
    });

    test("a tool that needs no approval", async () => {
      const { chat } = await newChat();
      await chat.sendMessage({ text: instruct([call("add", { a: 1, b: 2 })]) });
      const [{ type, state, input, output }] = toolsOf(chat.lastMessage);
      assert.deepEqual({ type, state, input, output }, { type: "tool-add", state: "output-available", input: { a: 1, b: 2 }, output: "3.0" });
      assert.match(textOf(chat.lastMessage), /^ID .* ID$/);
    });

    for (const approved of [true, false]) {
      test(`a tool that is ${approved ? "approved" : "denied"}`, async () => {
        const { chat, session } = await newChat();
        await chat.sendMessage({ text: NOTE });
        const part = await requested(chat);
        assert.deepEqual(part.input, { text: "milk" });
        await chat.addToolApprovalResponse({ id: part.approval.id, approved, reason: "as you like" });
        await until(() => chat.status === "ready" && textOf(chat.lastMessage));
        assert.equal(chat.error, undefined);
        assert.equal(chat.messages.length, 2);
        const [{ state, output }] = toolsOf(chat.lastMessage);
        assert.deepEqual([state, output], approved ? ["output-available", "Noted: milk"] : ["output-denied", undefined]);
        const stored = await messagesOf(api, session);
        assert.deepEqual(stored.map(({ role }) => role), ["user", "assistant", "tool", "assistant"]);
        assert.equal(stored[2].decided_by, "user");
        assert.match(stored[2].content, approved ? /Noted: milk/ : /denied this call. Reason: as you like/);
      });
    }

    test("two calls in one answer are decided one after the other", async () => {
      const { chat } = await newChat();
      const both = [{ name: "note", args: { text: "a" } }, { name: "note", args: { text: "b" } }];
      await chat.sendMessage({ text: instruct([{ tool_call: both }]) });
      for (const approved of [true, false]) {
        await chat.addToolApprovalResponse({ id: (await requested(chat)).approval.id, approved });
      }
      await until(() => chat.status === "ready" && textOf(chat.lastMessage));
      assert.deepEqual(toolsOf(chat.lastMessage).map(({ state }) => state), ["output-available", "output-denied"]);
    });

    test("a tool of an agent is approved", async () => {
      const { chat } = await newChat();
      await chat.sendMessage({ text: delegate([call("write", { text: "a" }), call("write", { text: "b" })]) });
      for (let decisions = 0; decisions < 2; decisions++) {
        await chat.addToolApprovalResponse({ id: (await requested(chat)).approval.id, approved: true });
      }
      await until(() => chat.status === "ready" && textOf(chat.lastMessage));
      const [agent, ...calls] = toolsOf(chat.lastMessage);
      assert.deepEqual([agent.type, agent.state], ["tool-agent", "output-available"]);
      assert.deepEqual(calls.map(({ output }) => output), ["Written: a", "Written: b"]);
    });

    test("a message instead of a decision ends the turn that waits", async () => {
      const { chat, session } = await newChat();
      await chat.sendMessage({ text: NOTE });
      await requested(chat);
      await chat.sendMessage({ text: instruct([]) });
      assert.equal(chat.error, undefined);
      assert.match(textOf(chat.lastMessage), /^ID .* ID$/);
      assert.deepEqual((await messagesOf(api, session)).map(({ role }) => role), ["user", "assistant", "tool", "user", "assistant"]);
    });

    test("regenerate and edit", async () => {
      const { chat, session } = await newChat();
      await chat.sendMessage({ text: instruct([]) });
      await chat.sendMessage({ text: "Bye" });
      await chat.regenerate();
      assert.equal(chat.messages.length, 4);
      assert.equal((await messagesOf(api, session)).length, 4);
      await chat.sendMessage({ text: "Hello again", messageId: chat.messages[0].id });
      const stored = await messagesOf(api, session);
      assert.deepEqual(stored.map(({ role }) => role), ["user", "assistant"]);
      assert.equal(stored[0].content, "Hello again");
    });

    test("stop keeps the partial answer", async () => {
      const { chat, session } = await newChat({ server: slow });
      const sending = chat.sendMessage({ text: instruct([{ text_message: { length: 500 } }]) });
      await until(() => chat.lastMessage?.role === "assistant" && textOf(chat.lastMessage));
      await chat.stop();
      await sending;
      assert.equal(chat.status, "ready");
      const [, answer] = await until(async () => ((stored) => stored[1]?.interrupted && stored)(await messagesOf(slow, session)));
      assert.ok(answer.content.length > 0);
    });

    test("a reloaded page resumes the stream from its beginning", async () => {
      const { chat, session } = await newChat({ server: slow, body: { on_disconnect: "continue" } });
      const sending = chat.sendMessage({ text: instruct([{ text_message: { length: 60 } }]) });
      await until(() => chat.lastMessage?.role === "assistant" && textOf(chat.lastMessage));
      await chat.stop();
      await sending;
      const reloaded = (await newChat({ server: slow, session })).chat;
      reloaded.messages = await historyOf(slow, session);
      assert.equal(reloaded.messages.length, 1);
      await reloaded.resumeStream();
      assert.equal(textOf(reloaded.lastMessage), (await messagesOf(slow, session))[1].content);
      reloaded.messages = await historyOf(slow, session);
      await reloaded.resumeStream();
      assert.equal(reloaded.error, undefined);
      assert.equal(reloaded.messages.length, 2);
      await reloaded.regenerate();
      assert.equal(reloaded.error, undefined);
      assert.equal((await messagesOf(slow, session)).length, 2);
    });

    test("errors have the server's message", async () => {
      const missing = (await newChat({ session: "0123456789" })).chat;
      await missing.sendMessage({ text: "Hello" });
      assert.match(missing.error.message, /SESSION_NOT_FOUND/);
      for (const text of ["break", "fail midway"]) {
        const { chat } = await newChat();
        await chat.sendMessage({ text });
        assert.match(chat.error.message, /Something broke/);
        await chat.sendMessage({ text: "hello" });
        assert.equal(chat.error, undefined);
        assert.equal(textOf(chat.lastMessage), "Hi there, how are you?");
      }
    });
  });
}
