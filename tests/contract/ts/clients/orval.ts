// Stream an answer with the fetch client of orval. Stop the turn at the first text.

import { eventsOf } from "./events";
import { createSession, stopChat, streamChat } from "./generated/orval/client";
import type { ChatStreamEvent, ContentDelta } from "./generated/orval/schemas";

declare const process: { argv: string[] };

async function main(message: string): Promise<void> {
  const session = await createSession({ model: "mochi" });
  if (session.status !== 201) throw new Error(`status ${session.status}`);
  const sessionId = session.data.session_id;
  const answer = await streamChat(sessionId, { message });
  if (answer.status !== 200) throw new Error(`status ${answer.status}`);
  const names: ChatStreamEvent["event"][] = [];
  for await (const { event, data } of eventsOf(answer.data as unknown as ReadableStream<Uint8Array>)) {
    const name = event as ChatStreamEvent["event"];
    if (name === "content_delta" && !names.includes(name)) {
      const delta = JSON.parse(data) as ContentDelta;
      if (delta.content.length > 0) await stopChat(sessionId);
    }
    names.push(name);
  }
  console.log(JSON.stringify(names));
}

void main(process.argv[3] ?? "");
