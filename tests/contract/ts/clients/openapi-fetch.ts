// Stream an answer with the types of openapi-typescript and its client openapi-fetch. Stop the turn at the first text.

import createClient from "openapi-fetch";
import { eventsOf } from "./events";
import type { components, paths } from "./generated/openapi-typescript";

type StreamEvent = components["schemas"]["ChatStreamEvent"];
type ContentDelta = components["schemas"]["ContentDelta"];

declare const process: { argv: string[] };

async function main(baseUrl: string, message: string): Promise<void> {
  const client = createClient<paths>({ baseUrl });
  const session = await client.POST("/api/v1/sessions", { body: { model: "mochi" } });
  if (!session.data) throw new Error(session.error.error.message);
  const path = { session_id: session.data.session_id };
  const answer = await client.POST("/api/v1/chat/{session_id}/stream", {
    params: { path },
    body: { message },
    parseAs: "stream",
  });
  if (!answer.data) throw new Error("no stream");
  const names: StreamEvent["event"][] = [];
  for await (const { event, data } of eventsOf(answer.data)) {
    const name = event as StreamEvent["event"];
    if (name === "content_delta" && !names.includes(name)) {
      const delta = JSON.parse(data) as ContentDelta;
      if (delta.content.length > 0) await client.POST("/api/v1/chat/{session_id}/stop", { params: { path } });
    }
    names.push(name);
  }
  console.log(JSON.stringify(names));
}

void main(process.argv[2] ?? "", process.argv[3] ?? "");
