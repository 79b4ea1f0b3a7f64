// Requests to mochi-server, and the parser of its event streams.

const DEFAULT_ADDRESS = "http://127.0.0.1:8000";

/** Address and API key of the server. Each key is stored with the address it belongs to. */
export const connection = {
  get address() { return localStorage.getItem("address") ?? DEFAULT_ADDRESS; },
  get key() { return localStorage.getItem(`key of ${this.address}`) ?? ""; },
  save(address, key) {
    localStorage.setItem("address", address.replace(/\/+$/, ""));
    if (key !== undefined) localStorage.setItem(`key of ${this.address}`, key);
  },
};

export class ApiError extends Error {
  constructor(message, code) {
    super(message);
    this.code = code;
  }
}

/** Send a request and return the response. Throw ApiError if the server rejects the request. */
export async function send(path, { method = "GET", body, headers = {}, signal } = {}) {
  const all = { ...headers };
  if (connection.key) all.Authorization = `Bearer ${connection.key}`;
  if (body !== undefined) all["Content-Type"] = "application/json";
  const address = `${connection.address}/api/v1${path}`;
  const response = await fetch(address, { method, headers: all, signal, body: JSON.stringify(body) });
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({}));
  throw new ApiError(error?.message ?? `The server answered with status ${response.status}.`, error?.code);
}

/** Send a request and return the JSON of the response. */
export async function request(path, options) {
  const response = await send(path, options);
  return response.status === 204 ? null : response.json();
}

export const get = (path) => request(path);
export const post = (path, body) => request(path, { method: "POST", body });
export const put = (path, body) => request(path, { method: "PUT", body });
export const patch = (path, body) => request(path, { method: "PATCH", body });
export const remove = (path) => request(path, { method: "DELETE" });

/** Yield the events of a stream as { id, event, data }. An incomplete last event is dropped. */
export async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
    const frames = (rest + chunk.value).split("\n\n");
    rest = frames.pop();
    for (const frame of frames) {
      const fields = Object.fromEntries(frame.split("\n").map(parseLine));
      if (fields.data) yield { ...fields, data: JSON.parse(fields.data) };
    }
  }
}

function parseLine(line) {
  const colon = line.indexOf(":");
  return [line.slice(0, colon), line.slice(colon + 2)];
}

/** Return a short text that describes the error to the user. */
export function describe(error) {
  if (error instanceof TypeError) return `No server at ${connection.address}.`;  // fetch() could not connect
  return error.message;
}
