// Generator of clients from an OpenAPI document, for the programs in this folder: `node generate.mjs DOCUMENT FOLDER`.
// The folder then has the clients, the programs, and a configuration for the compiler.

import { cpSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { createClient } from "@hey-api/openapi-ts";
import openapiTS, { astToString } from "openapi-typescript";
import { generate } from "orval";

const [document, folder] = process.argv.slice(2).map((path) => resolve(path));
const here = fileURLToPath(new URL(".", import.meta.url));
const generated = (name) => join(folder, "generated", name);

for (const file of ["events.ts", "fetch.ts", "openapi-fetch.ts", "hey-api.ts", "orval.ts"]) {
  cpSync(join(here, file), join(folder, file));
}
symlinkSync(join(here, "../node_modules"), join(folder, "node_modules"));

await createClient({
  input: document,
  logs: { level: "silent" },
  output: generated("hey-api"),
  plugins: ["@hey-api/client-fetch", "@hey-api/typescript", "@hey-api/sdk"],
});
await generate({
  input: document,
  output: {
    client: "fetch",
    override: { mutator: { path: join(folder, "fetch.ts"), name: "streamingFetch" } },
    schemas: generated("orval/schemas"),
    target: generated("orval/client.ts"),
  },
});
writeFileSync(
  generated("openapi-typescript.ts"),
  astToString(await openapiTS(JSON.parse(readFileSync(document, "utf8")), { defaultNonNullable: false })),
);
writeFileSync(
  join(folder, "tsconfig.json"),
  JSON.stringify({
    compilerOptions: {
      strict: true,
      skipLibCheck: true,
      target: "es2022",
      module: "commonjs",
      moduleResolution: "node10",
      lib: ["es2023", "dom", "dom.iterable"],
      types: [],
      outDir: "js",
    },
    files: ["openapi-fetch.ts", "hey-api.ts", "orval.ts"],
  }),
);
