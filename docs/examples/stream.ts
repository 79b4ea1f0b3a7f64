// Stream an answer to a web page: send requests with `fetch`, and parse the server-sent events of the response.
// mochi-server.d.ts contains the types of all requests and events. The type of `data` depends on the value of `event`.

import type { components } from "./mochi-server.d.ts";

type Schemas = components["schemas"];
type StreamEvent = Schemas["ChatStreamEvent"];

const api = "http://127.0.0.1:8000/api/v1";

async function post(path: string, body: unknown): Promise<Response> {
  const response = await fetch(api + path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  if (response.ok) return response;
  const { error } = (await response.json()) as Schemas["ErrorEnvelope"];
  throw new Error(`${error.code}: ${error.message}`);
}

/** Yield each event of a stream as soon as it arrives. */
async function* events(body: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncGenerator<StreamEvent> {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    const frames = (rest + piece.value).split("\n\n");
    rest = frames.pop() ?? "";
    for (const frame of frames) {
      const fields = new Map(frame.split("\n").map((line) => [line.split(":", 1)[0], line.replace(/^[^:]*: ?/, "")]));
      const [id, event, data] = [fields.get("id"), fields.get("event"), fields.get("data")];
      if (id && event && data) yield { id, event, data: JSON.parse(data) } as StreamEvent;
    }
  }
}

/**
 * Create a session, send a message, and pass each piece of the answer to `show`. Ask the user to approve tool calls.
 * Throw an Error if the server rejects a request or the turn fails.
 */
export async function ask(model: string, message: string, show: (text: string) => void): Promise<void> {
  const create: Schemas["SessionCreate"] = { model };
  const session = (await (await post("/sessions", create)).json()) as Schemas["Session"];
  const request: Schemas["ChatRequest"] = { message };
  const response = await post(`/chat/${session.session_id}/stream`, request);
  if (!response.body) return;
  for await (const { event, data } of events(response.body)) {
    switch (event) {
      case "content_delta":
        show(data.content);
        break;
      case "tool_call_confirmation_required": {
        const { confirmation_id, tool_name, arguments: given } = data;
        const approved = confirm(`May the model call ${tool_name}(${JSON.stringify(given)})?`);
        await post(`/chat/${session.session_id}/confirm-tool`, { confirmation_id, approved });
        break;
      }
      case "error":
        throw new Error(`${data.code}: ${data.message}`);
    }
  }
}
