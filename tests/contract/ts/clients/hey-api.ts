// Stream an answer with the client of hey-api, which parses the events. Stop the turn at the first text.

import { createSession, stopChat, streamChat, type ChatStreamEvent, type ContentDelta } from "./generated/hey-api";
import { client } from "./generated/hey-api/client.gen";

declare const process: { argv: string[] };

async function main(baseUrl: string, message: string): Promise<void> {
  client.setConfig({ baseUrl });
  const session = await createSession({ body: { model: "mochi" }, throwOnError: true });
  const path = { session_id: session.data.session_id };
  const names: ChatStreamEvent["event"][] = [];
  const latest: { name?: string } = {};
  const { stream } = await streamChat({
    path,
    body: { message },
    sseMaxRetryAttempts: 1, // by default, this client repeats a failed request and sends the message again
    onSseEvent: ({ event }) => { latest.name = event; },
  });
  for await (const data of stream) {
    const name = latest.name as ChatStreamEvent["event"];
    if (name === "content_delta" && !names.includes(name)) {
      const delta = data as unknown as ContentDelta; // this client parses the JSON of `data`
      if (delta.content.length > 0) await stopChat({ path, throwOnError: true });
    }
    names.push(name);
  }
  console.log(JSON.stringify(names));
}

void main(process.argv[2] ?? "", process.argv[3] ?? "");
