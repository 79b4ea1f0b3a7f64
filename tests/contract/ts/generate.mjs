// The types of the API, made of its OpenAPI document: `uv run npm run generate` in this folder writes them, `--check`
// compares. `mochi-server` must be on the PATH.

import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import openapiTS, { astToString } from "openapi-typescript";
import ts from "typescript";

const FILE = fileURLToPath(new URL("../../../docs/examples/mochi-server.d.ts", import.meta.url));
const HEAD = `// The types of mochi-server's API, made of its OpenAPI document. \`data\` of events is typed as what its JSON holds.\n\n`;

// The types of the events' \`data\`: of the JSON in it, not of the text that it is.
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
const made = HEAD + astToString(await openapiTS(JSON.parse(document), { transform, defaultNonNullable: false }));
if (!process.argv.includes("--check")) writeFileSync(FILE, made);
else if (readFileSync(FILE, "utf8") !== made) {
  console.error("docs/examples/mochi-server.d.ts is not what the document says: `uv run npm run generate` writes it.");
  process.exit(1);
}
