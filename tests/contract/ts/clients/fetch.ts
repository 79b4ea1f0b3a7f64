// The request function of orval's client. It returns the body of an event stream unread; orval's own function waits
// for its end and parses it as JSON.

export async function streamingFetch<T>(url: string, options: RequestInit): Promise<T> {
  const response = await fetch(process.argv[2] + url, options);
  const isStream = response.headers.get("content-type")?.startsWith("text/event-stream");
  const data = isStream ? response.body : await response.json();
  return { data, status: response.status, headers: response.headers } as T;
}

declare const process: { argv: string[] };
