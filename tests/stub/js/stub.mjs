// A mochi-stub of its own for each suite: on a free port, with the configuration beside this file, and without waiting.
// `mochi-stub` must be on the PATH: `uv run npm test` in this folder.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { after } from "node:test";

const CONFIG = fileURLToPath(new URL("config.yaml", import.meta.url));

// The URL of a stub that ends with the suite.
export function startStub() {
  const options = ["--port", "0", "--speed", "0", "--config", CONFIG, "--log-level", "warning"];
  return start("mochi-stub", ["run", ...options]);
}

// The URL that a command prints when it serves; it ends with the suite.
export async function start(command, options) {
  const process = spawn(command, options, { stdio: ["ignore", "pipe", "inherit"] });
  after(async () => {
    process.kill();
    if (process.exitCode === null) await once(process, "exit");
  });
  for await (const line of createInterface({ input: process.stdout })) {
    const url = line.match(/http:\/\/127\.0\.0\.1:\d+/);
    if (url) {
      process.stdout.resume();
      return url[0];
    }
  }
  throw new Error(`${command} ended without printing its address.`);
}
