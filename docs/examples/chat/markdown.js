// Markdown of an answer: parsed by marked, highlighted by highlight.js, sanitized by DOMPurify.

import hljs from "../vendor/highlight.min.js";
import { Marked } from "../vendor/marked.esm.js";
import DOMPurify from "../vendor/purify.es.js";
import { announce, button, element } from "./page.js";

const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const escapeHtml = (text) => text.replace(/[&<>"]/g, (character) => ENTITIES[character]);

const markdown = new Marked({
  breaks: true,
  renderer: {
    html: ({ text }) => escapeHtml(text),  // show HTML of the model as text
    image: ({ href, text }) => `<a href="${escapeHtml(href)}">${escapeHtml(text || href)}</a>`,  // load nothing
    code: ({ text, lang = "" }) => {
      const language = lang.split(/\s/)[0];
      const known = hljs.getLanguage(language);
      const code = known ? hljs.highlight(text, { language }).value : escapeHtml(text);
      return `<pre data-language="${escapeHtml(language)}"><code>${code}</code></pre>`;
    },
  },
});

const SANITIZER_OPTIONS = {
  USE_PROFILES: { html: true },
  FORBID_TAGS: ["style", "form", "img"],
  FORBID_ATTR: ["style", "id", "name"],
  RETURN_DOM_FRAGMENT: true,
};

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") Object.assign(node, { target: "_blank", rel: "noopener noreferrer" });
});

/** A growing Markdown text. Only the blocks that have changed are rendered again. */
export class MarkdownText {
  constructor(container) {
    this.container = container;
    this.blocks = [];
    this.text = "";
    this.scheduled = false;
  }

  append(text) {
    this.text += text;
    if (this.scheduled) return;
    this.scheduled = true;
    setTimeout(() => this.render(), 30);  // render at most about 30 times a second
  }

  render() {
    this.scheduled = false;
    const tokens = markdown.lexer(this.text);
    tokens.forEach((token, position) => {
      if (this.blocks[position]?.raw === token.raw) return;
      const block = element("div", { className: "block" }, renderToken(token));
      if (this.blocks[position]) this.blocks[position].block.replaceWith(block);
      else this.container.append(block);
      this.blocks[position] = { raw: token.raw, block };
    });
    for (const { block } of this.blocks.splice(tokens.length)) block.remove();
  }
}

function renderToken(token) {
  const fragment = DOMPurify.sanitize(markdown.parser([token]), SANITIZER_OPTIONS);
  for (const code of fragment.querySelectorAll("pre")) addCodeHeader(code);
  for (const table of fragment.querySelectorAll("table")) {
    const scroller = element("div", { className: "table", tabIndex: 0, role: "region", ariaLabel: "Table" });
    table.replaceWith(scroller);
    scroller.append(table);
  }
  return fragment;
}

function addCodeHeader(code) {
  const copy = copyButton(() => code.textContent, "Copy code");
  const header = element("div", { className: "code-header" }, element("span", {}, code.dataset.language || "text"), copy);
  const frame = element("div", { className: "code" });
  code.replaceWith(frame);
  code.tabIndex = 0;  // so that the keyboard can scroll it
  frame.append(header, code);
}

/** Return a button that copies a text to the clipboard. */
export function copyButton(getText, label = "Copy") {
  const copy = button(label, async () => {
    try {
      await navigator.clipboard.writeText(getText());
      copy.textContent = "Copied";
      announce("Copied");
    } catch {
      copy.textContent = "Copying is blocked";  // browsers allow it only on https and localhost
    }
    setTimeout(() => { copy.textContent = label; }, 2000);
  }, { className: "quiet" });
  return copy;
}
