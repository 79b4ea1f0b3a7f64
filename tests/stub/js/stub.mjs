// One mochi-stub for each suite: on a free port, with `config.yaml` and without pacing.
// `mochi-stub` must be on the PATH: `uv run npm test` in this folder.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { after } from "node:test";

const CONFIG = fileURLToPath(new URL("config.yaml", import.meta.url));

// Start a stub that ends with the suite, and return its URL.
export function startStub() {
  const options = ["--port", "0", "--speed", "0", "--config", CONFIG, "--log-level", "warning"];
  return start("mochi-stub", ["run", ...options]);
}

// Start a command that ends with the suite, and return the URL that it prints.
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
