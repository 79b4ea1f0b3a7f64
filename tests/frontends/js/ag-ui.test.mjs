// AG-UI's client: its `HttpAgent`, which checks the order of events.

import assert from "node:assert/strict";
import { test } from "node:test";
import { HttpAgent, buildResumeArray } from "@ag-ui/client";
import { startStub } from "../../stub/js/stub.mjs";
import { call, delegate, instruct, messagesOf, newSession, startServer, until } from "./server.mjs";

const api = await startServer("--ollama-host", await startStub());
const slow = await startServer("--test-mode", "--stub-speed", "1");
const LOOK = { name: "look", description: "Look at the screen.", parameters: { type: "object", properties: { at: { type: "string" } } } };
const NOTE = instruct([call("note", { text: "milk" })]);
let number = 0;

async function newAgent({ server = api, session } = {}) {
  session ??= await newSession(server);
  return { session, agent: new HttpAgent({ url: `${server}/chat/${session}/ag-ui`, threadId: "my thread" }) };
}

// Send a message, or continue without one. Return the events of the run.
async function run(agent, content, parameters = {}) {
  if (content) agent.addMessage({ id: `u${number++}`, role: "user", content });
  const events = [];
  await agent.runAgent(parameters, { onEvent: ({ event }) => void events.push(event) });
  return events;
}

const typesOf = (events) => events.map(({ type }) => type).filter((type, index, all) => type !== all[index - 1]);
const rolesOf = async (session) => (await messagesOf(api, session)).map(({ role }) => role);

test("text and reasoning", async () => {
  const { agent } = await newAgent();
  const events = await run(agent, instruct([], 4), { forwardedProps: { think: true } });
  assert.deepEqual(typesOf(events), [
    ...["RUN_STARTED", "REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END"],
    ...["REASONING_END", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"],
  ]);
  assert.match(agent.messages.at(-1).content, /^ID .* ID$/);
  assert.deepEqual(events.at(-1).outcome, { type: "success" });
  assert.equal(events.at(-1).usage[0].model, "mochi");
});

test("three turns with a tool of the server", async () => {
  const { agent, session } = await newAgent();
  for (let turn = 0; turn < 3; turn++) await run(agent, instruct([call("add", { a: turn, b: 1 })]));
  const roles = Array(3).fill(["user", "assistant", "tool", "assistant"]).flat();
  assert.deepEqual(agent.messages.map(({ role }) => role), roles);
  assert.equal(agent.messages[2].content, "1.0");
  assert.deepEqual(await rolesOf(session), roles);
});

for (const [payload, content] of [
  [{ approved: true }, "Noted: milk"],
  [{ approved: true, editedArgs: { text: "tea" } }, "Noted: tea"],
  [{ approved: false, reason: "No." }, /denied this call. Reason: No./],
]) {
  test(`an interrupt with ${JSON.stringify(payload)}`, async () => {
    const { agent, session } = await newAgent();
    const [started, ...events] = await run(agent, NOTE);
    const { outcome } = events.at(-1);
    assert.equal(outcome.interrupts[0].reason, "tool_call");
    assert.equal(outcome.interrupts[0].toolCallId, events.find(({ type }) => type === "TOOL_CALL_START").toolCallId);
    const resume = buildResumeArray(agent.pendingInterrupts, { [outcome.interrupts[0].id]: { status: "resolved", payload } });
    const resumed = await run(agent, null, { resume });
    assert.notEqual(resumed[0].runId, started.runId);
    assert.deepEqual(typesOf(resumed).slice(0, 3), ["RUN_STARTED", "TOOL_CALL_RESULT", "TEXT_MESSAGE_START"]);
    const result = resumed[1].content;
    assert.ok(content instanceof RegExp ? content.test(result) : result === content, result);
    assert.deepEqual(await rolesOf(session), ["user", "assistant", "tool", "assistant"]);
    await run(agent, instruct([]));
    assert.equal((await rolesOf(session)).length, 6);
  });
}

test("an interrupt of an agent", async () => {
  const { agent, session } = await newAgent();
  const events = await run(agent, delegate([call("write", { text: "a" })]));
  const [{ id, toolCallId }] = events.at(-1).outcome.interrupts;
  const [outer, inner] = events.filter(({ type }) => type === "TOOL_CALL_START");
  assert.deepEqual([outer.toolCallName, inner.toolCallName, inner.toolCallId], ["agent", "write", toolCallId]);
  const resume = buildResumeArray(agent.pendingInterrupts, { [id]: { status: "resolved", payload: { approved: true } } });
  const results = (await run(agent, null, { resume })).filter(({ type }) => type === "TOOL_CALL_RESULT");
  assert.deepEqual(results.map((result) => result.toolCallId), [inner.toolCallId, outer.toolCallId]);
  assert.equal(results[0].content, "Written: a");
  assert.deepEqual(typesOf(await run(agent, instruct([]))).at(-1), "RUN_FINISHED");
  assert.deepEqual(await rolesOf(session), ["user", "assistant", "tool", "assistant", "user", "assistant"]);
});

test("a tool of the client", async () => {
  const { agent, session } = await newAgent();
  for (let turn = 0; turn < 2; turn++) {
    const events = await run(agent, instruct([call("look", { at: "menu" })]), { tools: [LOOK] });
    const [id] = events.at(-1).outcome.pendingToolCallIds;
    const { toolCalls } = agent.messages.findLast(({ role }) => role === "assistant");
    assert.deepEqual(JSON.parse(toolCalls[0].function.arguments), { at: "menu" });
    agent.addMessage({ id: `t${turn}`, role: "tool", toolCallId: id, content: "open" });
    await run(agent, null, { tools: [LOOK] });
    assert.match(agent.messages.at(-1).content, /^ID .* ID$/);
  }
  assert.deepEqual(await rolesOf(session), Array(2).fill(["user", "assistant", "tool", "assistant"]).flat());
});

test("tools of the client and of the server in one answer", async () => {
  const { agent, session } = await newAgent();
  const both = [{ name: "add", args: { a: 1, b: 2 } }, { name: "look", args: { at: "menu" } }];
  const events = await run(agent, instruct([{ tool_call: both }]), { tools: [LOOK] });
  const [id] = events.at(-1).outcome.pendingToolCallIds;
  agent.addMessage({ id: "t", role: "tool", toolCallId: id, content: "open" });
  await run(agent, null, { tools: [LOOK] });
  assert.deepEqual(await rolesOf(session), ["user", "assistant", "tool", "tool", "assistant"]);
});

for (const count of [1, 2]) {
  test(`the last message is answered again by a run with ${count} messages`, async () => {
    const { agent, session } = await newAgent();
    await run(agent, instruct([]));
    const [, { message_id: first }] = await messagesOf(api, session);
    agent.setMessages(agent.messages.slice(0, count));
    await run(agent);
    assert.deepEqual(await rolesOf(session), ["user", "assistant"]);
    assert.notEqual((await messagesOf(api, session))[1].message_id, first);
  });
}

test("abort keeps the partial answer", async () => {
  const { agent, session } = await newAgent({ server: slow });
  const running = run(agent, instruct([{ text_message: { length: 500 } }]));
  await until(() => agent.messages.at(-1)?.role === "assistant" && agent.messages.at(-1).content);
  agent.abortRun();
  await running;
  await until(async () => (await messagesOf(slow, session))[1]?.interrupted);
});

test("a stop by another client cancels the run", async () => {
  const { agent, session } = await newAgent({ server: slow });
  const running = run(agent, instruct([{ text_message: { length: 500 } }]));
  await until(() => agent.messages.at(-1)?.role === "assistant" && agent.messages.at(-1).content);
  await fetch(`${slow}/chat/${session}/stop`, { method: "POST" });
  assert.deepEqual((await running).at(-1).outcome, { type: "cancelled" });
});

test("errors have the server's message", async () => {
  await assert.rejects(run((await newAgent({ session: "0123456789" })).agent, "hello"), /SESSION_NOT_FOUND/);
  const { agent } = await newAgent();
  const { type, code, message } = (await run(agent, "fail midway")).at(-1);
  assert.equal(type, "RUN_ERROR");
  assert.equal(code, "OLLAMA_ERROR");
  assert.match(message, /Something broke/);
});
