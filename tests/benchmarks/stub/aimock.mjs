// aimock with the replies of the file that is given, on a free port. Its journal is as long as mochi-stub's.

import { readFileSync } from "node:fs";
import { LLMock } from "@copilotkit/aimock";

const { replies, chunk } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const mock = new LLMock({ port: 0, logLevel: "silent", chunkSize: chunk, journalMaxEntries: 1000 });
for (const [message, content] of Object.entries(replies)) mock.onMessage(message, { content });
await mock.start();
console.log(mock.url);
