// aimock on a free port, with replies from a file. Its journal has the length of mochi-stub's.

import { readFileSync } from "node:fs";
import { LLMock } from "@copilotkit/aimock";

const { replies, chunk } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const mock = new LLMock({ port: 0, logLevel: "silent", chunkSize: chunk, journalMaxEntries: 1000 });
for (const [message, content] of Object.entries(replies)) mock.onMessage(message, { content });
await mock.start();
console.log(mock.url);
