// Server-sent events of a response body, for generated clients that return the body unparsed.

export async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<{ event: string; data: string }> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let buffer = "";
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    buffer += decoder.decode(read.value, { stream: true });
    const frames = buffer.split("\n\n");
    buffer = frames.pop() ?? "";
    for (const frame of frames) {
      const fields = new Map(frame.split("\n").map((line): [string, string] => {
        const [, name, value] = /^([^:]*): ?(.*)$/.exec(line) ?? ["", "", ""];
        return [name, value];
      }));
      if (fields.has("data")) yield { event: fields.get("event") ?? "", data: fields.get("data") ?? "" };
    }
  }
}
