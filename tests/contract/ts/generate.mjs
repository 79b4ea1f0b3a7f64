// Generator of the API's TypeScript types from the OpenAPI document: run `uv run npm run generate` in this folder.
// `--check` compares. `mochi-server` must be on the PATH.

import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import openapiTS, { astToString } from "openapi-typescript";
import ts from "typescript";

const FILE = fileURLToPath(new URL("../../../docs/examples/mochi-server.d.ts", import.meta.url));
const HEAD = `// Types of mochi-server's API, generated from its OpenAPI document. \`data\` of an event has the type of its parsed JSON.\n\n`;

// Type of an event's `data`: that of the JSON in it.
function transform(schema) {
  if (schema.contentSchema === undefined) return undefined;
  return typeOf(schema.contentSchema);
}

function typeOf(schema) {
  if (schema.anyOf) return ts.factory.createUnionTypeNode(schema.anyOf.map(typeOf));
  return reference(["components", "schemas", schema.$ref.split("/").at(-1)]);
}

function reference([root, ...path]) {
  const keys = path.map((key) => ts.factory.createLiteralTypeNode(ts.factory.createStringLiteral(key)));
  return keys.reduce((type, key) => ts.factory.createIndexedAccessTypeNode(type, key), ts.factory.createTypeReferenceNode(root));
}

const document = execFileSync("mochi-server", ["openapi"], { encoding: "utf8", maxBuffer: 1 << 26 });
const types = HEAD + astToString(await openapiTS(JSON.parse(document), { transform, defaultNonNullable: false }));
if (!process.argv.includes("--check")) writeFileSync(FILE, types);
else if (readFileSync(FILE, "utf8") !== types) {
  console.error("docs/examples/mochi-server.d.ts is outdated. Run `uv run npm run generate` in tests/contract/ts.");
  process.exit(1);
}
