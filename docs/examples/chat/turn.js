// One turn on the page: a user message, and everything that happens until its answer is complete.

import { Approval } from "./approval.js";
import { copyButton, MarkdownText } from "./markdown.js";
import { button, byId, element, fitHeight, keepAtEnd, showStatus } from "./page.js";

export class Turn {
  /** `actions` has the functions `edit(turn, text)`, `regenerate(turn)` and `onContextWindow(window)`. */
  constructor(sessionId, { text, attachments = [] }, actions) {
    this.sessionId = sessionId;
    this.actions = actions;
    this.box = element("section", { className: "turn" });
    this.userText = text;
    if (text !== null) this.addUserMessage(attachments);
    this.answer = element("article", { className: "answer", ariaLabel: "Answer" });
    this.footer = element("div", { className: "actions" });
    this.box.append(this.answer, this.footer);
    this.clearAnswer();
    keepAtEnd(() => byId("log").append(this.box));
  }

  addUserMessage(attachments) {
    this.user = element("article", { className: "user", ariaLabel: "You" });
    if (attachments.length) this.user.append(element("div", { className: "attached" }, ...attachments));
    this.user.append(element("div", { className: "text" }, this.userText));
    const edit = button("Edit", () => this.editUserMessage(), { className: "quiet" });
    this.userActions = element("div", { className: "actions of-user" }, edit);
    this.box.append(this.user, this.userActions);
  }

  editUserMessage() {
    const field = element("textarea", { value: this.userText, ariaLabel: "Edited message" });
    const close = () => {
      form.replaceWith(this.user);
      this.userActions.hidden = false;
    };
    const form = element("form", { className: "edit" }, field, element("div", { className: "row" },
      element("button", { className: "primary" }, "Send again"), button("Cancel", close)));
    form.onsubmit = (event) => {
      event.preventDefault();
      if (field.value.trim()) this.actions.edit(this, field.value.trim()).then(close, () => {});
    };
    form.onkeydown = (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      close();
    };
    this.user.replaceWith(form);
    this.userActions.hidden = true;
    fitHeight(field);
    field.focus();
  }

  setUserText(text) {
    this.userText = text;
    this.user.querySelector(".text").textContent = text;
  }

  clearAnswer() {
    this.answer.replaceChildren();
    this.footer.replaceChildren();
    this.cards = new Map();  // cards of tool calls and agents
    this.texts = [];         // the Markdown texts of the answer
    this.current = {};       // the block that receives the next piece of text
  }

  /** Append a piece of text. `kind` is "text", "Thinking" or "Plan". */
  appendText(kind, text, parent = this.answer) {
    keepAtEnd(() => {
      if (this.current.kind !== kind || this.current.parent !== parent) this.startBlock(kind, parent);
      this.current.content.append(text);
    });
  }

  startBlock(kind, parent) {
    this.finishBlock();
    const container = element("div", { className: kind === "text" ? "markdown" : "thinking" });
    if (kind === "text") parent.append(container);
    else parent.append(element("details", { open: kind === "Plan" }, element("summary", {}, kind), container));
    this.current = { kind, parent, content: kind === "text" ? new MarkdownText(container) : container };
    if (kind === "text" && parent === this.answer) this.texts.push(this.current.content);
  }

  /** Complete the current block. Text that follows begins a new one. */
  finishBlock() {
    if (this.current.kind === "text") keepAtEnd(() => this.current.content.render());
    this.current = {};
  }

  addNote(text, className = "note", parent = this.answer) {
    this.finishBlock();
    keepAtEnd(() => parent.append(element("p", { className }, text)));
  }

  addCard(className, parent = this.answer) {
    this.finishBlock();
    const card = element("div", { className: `card ${className}` });
    keepAtEnd(() => parent.append(card));
    return card;
  }

  showCall(key, name, callArguments, parent) {
    const card = this.cards.get(key) ?? this.addCard("call", parent);
    this.cards.set(key, card);
    const shown = Object.entries(callArguments ?? {}).map(([field, value]) => `${field}=${JSON.stringify(value)}`);
    card.className = "card call";
    card.replaceChildren(element("div", {}, "Tool ", element("code", {}, `${name}(${shown.join(", ")})`)));
    return card;
  }

  showResult(key, { tool_name: name, success, result, error_message: problem }, parent) {
    const approval = this.approvals?.get(key);
    if (approval && !approval.closed) this.closeApproval(key, approval.sentArguments, parent);
    const card = this.cards.get(key) ?? this.showCall(key, name, {}, parent);
    const output = element("pre", { className: success ? "success" : "failure", tabIndex: 0 }, success ? result : problem);
    keepAtEnd(() => card.append(output));
  }

  askApproval(key, data, parent) {
    this.finishBlock();
    const approval = new Approval(this.sessionId, data, () => this.closeApproval(key, approval.sentArguments, parent));
    this.approvals ??= new Map();
    this.approvals.set(key, approval);
    this.cards.set(key, approval.card);
    keepAtEnd(() => (parent ?? this.answer).append(approval.card));
    approval.open();
  }

  /** Replace the question by the card of the call. */
  closeApproval(key, callArguments, parent) {
    const approval = this.approvals.get(key);
    if (approval.closed) return;
    approval.closed = true;
    if (approval.card.contains(document.activeElement)) byId("message").focus();
    this.showCall(key, approval.toolName, callArguments, parent);
  }

  agentCard({ parent_call_id: id, agent_name: name }) {
    if (!this.cards.has(id)) {
      const card = this.addCard("agent");
      card.append(element("strong", {}, `Agent ${name}`));
      this.cards.set(id, card);
    }
    return this.cards.get(id);
  }

  handle({ event, data }) {
    if (event !== "status") showStatus("");
    this[`on_${event}`]?.(data);  // unknown events are ignored
  }

  on_content_delta({ content }) { this.appendText("text", content); }
  on_thinking_delta({ content }) { this.appendText("Thinking", content); }
  on_tool_call(data) { this.showCall(`${data.call_index}`, data.tool_name, data.arguments); }
  on_tool_result(data) { this.showResult(`${data.call_index}`, data); }

  on_tool_call_confirmation_required(data) {
    if (data.agent_name) {  // agents run one after the other
      this.askApproval(`${this.runningAgent}/${data.call_index}`, data, this.cards.get(this.runningAgent));
    } else this.askApproval(`${data.call_index}`, data);
  }

  on_agent_start(data) {
    this.runningAgent = data.parent_call_id;
    this.addNote(data.instruction, "note", this.agentCard(data));
  }

  on_agent_planning(data) { this.appendText("Plan", data.content, this.agentCard(data)); }
  on_agent_execution(data) { this.appendText("text", data.content, this.agentCard(data)); }

  on_agent_tool_call(data) {
    this.showCall(`${data.parent_call_id}/${data.call_index}`, data.tool_name, data.arguments, this.agentCard(data));
  }

  on_agent_tool_result(data) {
    this.showResult(`${data.parent_call_id}/${data.call_index}`, data, this.agentCard(data));
  }

  on_agent_complete(data) {
    this.addNote(data.success ? "done" : data.output, data.success ? "success" : "failure", this.agentCard(data));
  }

  on_snapshot({ content, thinking }) {
    this.clearAnswer();
    if (thinking) this.appendText("Thinking", thinking);
    this.appendText("text", content);
  }

  on_message_complete({ context_window: window }) { this.actions.onContextWindow(window); }
  on_context_compacted() { this.addNote("Older messages were shortened for the model."); }
  on_status({ state, elapsed }) { showStatus(`${state.replaceAll("_", " ")}, ${Math.round(elapsed)} s`); }
  on_warning({ message }) { this.addNote(message); }
  on_error({ message }) { this.addNote(message, "failure"); }
  on_stopped() { this.addNote("(stopped)"); }

  /** Show the buttons of a complete answer. */
  finish() {
    this.finishBlock();
    const copy = copyButton(() => this.answerText());
    keepAtEnd(() => this.footer.replaceChildren(copy, button("Regenerate", () => this.actions.regenerate(this), {
      className: "quiet regenerate",
    })));
  }

  answerText() {
    return this.texts.map((part) => part.text).join("\n\n");
  }
}
