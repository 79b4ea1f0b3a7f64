// The comparison: the same message to up to three models, with their answers side by side.

import { readEvents, send } from "./api.js";
import { MarkdownText } from "./markdown.js";
import { byId, element } from "./page.js";

const MAX_MODELS = 3;

/** Show a checkbox for each model. The first two are chosen. */
export function showComparedModels(names) {
  const labels = names.map((name, position) => {
    const box = element("input", { type: "checkbox", value: name, checked: position < 2, onchange: limitChoice });
    return element("label", {}, box, name);
  });
  byId("compared-models").replaceChildren(...labels);
}

function limitChoice() {
  const boxes = [...byId("compared-models").querySelectorAll("input")];
  const full = boxes.filter((box) => box.checked).length >= MAX_MODELS;
  for (const box of boxes) box.disabled = full && !box.checked;
}

/** Send a message to the chosen models and show their answers until the stream ends. */
export async function compare(message, signal) {
  const modelIds = [...byId("compared-models").querySelectorAll(":checked")].map((box) => box.value);
  if (!modelIds.length) throw new Error("Choose at least one model.");
  const columns = new Map(modelIds.map((name) => [name, new Column(name)]));
  byId("columns").replaceChildren(...[...columns.values()].map((column) => column.box));
  const body = { modelIds, message, think: byId("think").checked };
  const response = await send("/models/test", { method: "POST", body, signal });
  for await (const { event, data } of readEvents(response)) columns.get(data.modelId)?.handle(event, data);
}

class Column {
  constructor(name) {
    this.state = element("div", { className: "note" }, "waiting");
    this.box = element("section", { className: "card", ariaLabel: name }, element("strong", {}, name), this.state);
  }

  handle(event, data) {
    if (event === "start") this.state.textContent = "answering …";
    if (event === "chunk" && data.kind === "thinking") this.showThinking(data.delta);
    else if (event === "chunk") this.showText(data.delta);
    if (event === "done") this.state.textContent = statistics(data);
    if (event === "error") Object.assign(this.state, { textContent: data.error, className: "failure" });
  }

  showThinking(delta) {
    if (!this.thinking) {
      this.thinking = element("div", { className: "thinking" });
      this.box.append(element("details", {}, element("summary", {}, "Thinking"), this.thinking));
    }
    this.thinking.append(delta);
  }

  showText(delta) {
    if (!this.text) {
      const container = element("div", { className: "markdown" });
      this.box.append(container);
      this.text = new MarkdownText(container);
    }
    this.text.append(delta);
  }
}

function statistics({ outputTokens, tokensPerSecond, totalMs }) {
  const speed = tokensPerSecond?.toFixed(0) ?? "?";
  return `${outputTokens} tokens · ${speed} tokens/s · ${(totalMs / 1000).toFixed(1)} s`;
}
