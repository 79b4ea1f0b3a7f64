// Requests to mochi-server.

import type { components } from "../../mochi-server";

export type Schemas = components["schemas"];

const SERVER: string = import.meta.env.VITE_MOCHI_SERVER ?? "http://127.0.0.1:8000";
export const API = `${SERVER}/api/v1`;

/** Return a sentence for the user. If a connection fails or breaks, the browser throws a TypeError. */
export function describe(error: Error): string {
  const isConnectionLost = error instanceof TypeError;
  return isConnectionLost ? `${SERVER} does not answer. Start mochi-server, then reload the page.` : error.message;
}

/** Send a request like `fetch`. If the server refuses it, throw an error with the server's message. */
export async function request(...args: Parameters<typeof fetch>): Promise<Response> {
  const response = await fetch(...args);
  if (response.ok) return response;
  const body = (await response.json().catch(() => null)) as Schemas["ErrorEnvelope"] | null;
  throw new Error(body?.error.message ?? `The server refused the request with status ${response.status}.`);
}

export async function get<T>(path: string): Promise<T> {
  return (await request(API + path)).json();
}

export async function post<T>(path: string, body: unknown = {}): Promise<T> {
  const headers = { "Content-Type": "application/json" };
  return (await request(API + path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

/** Create a chat that uses everything the model can do. By default, each tool call needs the approval of the user. */
export async function createSession({ name, capabilities }: Schemas["Model"]): Promise<string> {
  const { tools } = await get<Schemas["ToolList"]>("/tools");
  const session: Schemas["SessionCreate"] = {
    model: name,
    think: capabilities.includes("thinking") || null,
    tool_settings: { tools: capabilities.includes("tools") ? Object.keys(tools) : [] },
  };
  return (await post<Schemas["Session"]>("/sessions", session)).session_id;
}
