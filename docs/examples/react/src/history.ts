// The stored messages of a chat, as messages of the AI SDK.

import type { ToolUIPart, UIMessage } from "ai";
import { get, type Schemas } from "./server";

type Stored = Schemas["StoredMessage"];
export type Message = UIMessage<unknown, { warning: Schemas["TurnWarning"] }>;

/** Load the messages of a chat. Omit the answer of a running turn: the resumed stream repeats it from its beginning. */
export async function history(session: string): Promise<Message[]> {
  const { state } = await get<Schemas["RunStatus"]>(`/chat/${session}/run`);
  const { messages } = await get<Schemas["MessageList"]>(`/sessions/${session}/messages`);
  const running = state === "running" || state === "waiting_for_approval";
  const end = running ? messages.findLastIndex(({ role }) => role === "user") + 1 : messages.length;
  const shown: Message[] = [];
  for (const { role, message_id: id, content, thinking, tool_calls } of messages.slice(0, end)) {
    if (role !== "user" && role !== "assistant") continue;
    // The server stores one message for each answer of the model. The AI SDK has one message for the whole turn.
    if (role === "user" || shown.at(-1)?.role !== "assistant") shown.push({ id, role, parts: [] });
    const parts = shown.at(-1)!.parts;
    if (thinking) parts.push({ type: "reasoning", text: thinking });
    if (content) parts.push({ type: "text", text: content });
    for (const call of tool_calls ?? []) {
      parts.push(toolPart(call, messages.find(({ tool_call_id }) => tool_call_id === call.id)));
    }
  }
  return shown;
}

/** The server's text for a call that did not begin: the turn was stopped, or a new message has withdrawn the call. */
export const NOT_RUN = "The turn was interrupted before this call had a result.";

function toolPart({ id, function: { name, arguments: input } }: Schemas["ToolCall"], result?: Stored): ToolUIPart {
  const call = { type: `tool-${name}`, toolCallId: id, input } as const;
  if (result?.success) return { ...call, state: "output-available", output: result.content };
  if (result?.error_code === "TOOL_EXECUTION_DENIED") {
    return { ...call, state: "output-denied", approval: { id, approved: false } };
  }
  return { ...call, state: "output-error", errorText: result?.content ?? "The turn ended before this call." };
}
