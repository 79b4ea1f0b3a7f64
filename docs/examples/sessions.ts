// Versions, files, order and imports of sessions, and the authorization of MCP servers, for a web page.
// mochi-server.d.ts contains the types of all requests and responses.

import type { components } from "./mochi-server.d.ts";

type Schemas = components["schemas"];

const api = "http://127.0.0.1:8000/api/v1";

/** Send a request. Throw an Error with the server's message if the server rejects it. */
async function send(path: string, options: RequestInit = {}): Promise<Response> {
  const response = await fetch(api + path, options);
  if (response.ok) return response;
  const { error } = (await response.json()) as Schemas["ErrorEnvelope"];
  throw new Error(`${error.code}: ${error.message}`);
}

function withJson(method: string, body: unknown): RequestInit {
  return { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
}

/** Show the version before (-1) or after (1) the shown one, if there is one. Return the changed session. */
export async function showVersion(
  sessionId: string, messageId: string, step: -1 | 1,
): Promise<Schemas["SessionDetail"] | null> {
  const path = `/sessions/${sessionId}/versions`;
  const list = (await (await send(`${path}?message_id=${messageId}`)).json()) as Schemas["VersionList"];
  const next = list.versions[list.versions.findIndex((version) => version.is_shown) + step];
  if (!next?.version_id) return null;
  const response = await send(`${path}/${next.version_id}/select`, { method: "POST" });
  return (await response.json()) as Schemas["HistoryChanged"];
}

/** Send a message with files, for example those of an `input` element. Return the complete answer. */
export async function askAbout(
  sessionId: string, message: string, files: Iterable<File>,
): Promise<Schemas["ChatResponse"]> {
  const attachments: Schemas["AttachmentIn"][] = [];
  for (const file of files) attachments.push({ name: file.name, data: await base64(file) });
  const request: Schemas["ChatRequest"] = { message, attachments };
  return (await (await send(`/chat/${sessionId}`, withJson("POST", request))).json()) as Schemas["ChatResponse"];
}

async function base64(file: Blob): Promise<string> {
  let binary = "";
  for (const byte of new Uint8Array(await file.arrayBuffer())) binary += String.fromCharCode(byte);
  return btoa(binary);
}

/** Return the bytes of a file of a stored message. */
export async function download(sessionId: string, file: Schemas["AttachmentReference"]): Promise<Blob> {
  return (await send(`/sessions/${sessionId}/files/${file.sha256}`)).blob();
}

/** Pin a session, set its tags or archive it. */
export async function putInOrder(
  sessionId: string, order: Pick<Schemas["SessionPatch"], "pinned" | "tags" | "archived">,
): Promise<void> {
  await send(`/sessions/${sessionId}`, withJson("PATCH", order));
}

/** Return the sessions that are not archived, the pinned ones first. With `tag`, only those that have it. */
export async function listSessions(tag?: string): Promise<Schemas["Session"][]> {
  const query = new URLSearchParams({ pinned: "first", archived: "false", ...(tag && { tag }) });
  return ((await (await send(`/sessions?${query}`)).json()) as Schemas["SessionList"]).sessions;
}

/** Import an export of this server, ChatGPT, Claude, LibreChat or Open WebUI. Return the sessions and the warnings. */
export async function importFile(file: File): Promise<Schemas["SessionsImported"]> {
  const type = file.name.endsWith(".zip") ? "application/zip" : "application/json";
  const options = { method: "POST", headers: { "Content-Type": type }, body: file };
  return (await (await send("/sessions/import", options)).json()) as Schemas["SessionsImported"];
}

/** Return the URL at which the user authorizes each remote MCP server that needs it, by the name of the server. */
export async function authorizationUrls(): Promise<Map<string, string>> {
  const { servers } = (await (await send("/mcp/servers")).json()) as Schemas["McpServerList"];
  const urls = new Map<string, string>();
  for (const { name, state } of servers) {
    if (state !== "needs_authorization") continue;
    const begun = await send(`/mcp/servers/${encodeURIComponent(name)}/authorize`, { method: "POST" });
    urls.set(name, ((await begun.json()) as Schemas["McpAuthorization"]).authorization_url);
  }
  return urls;
}
