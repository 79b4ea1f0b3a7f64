// The card that asks the user to approve a tool call.

import { describe, post } from "./api.js";
import { announce, button, byId, element, fitHeight } from "./page.js";

export class Approval {
  constructor(sessionId, data, onDecided) {
    Object.assign(this, { sessionId, data, onDecided, toolName: data.tool_name, sentArguments: data.arguments });
    const caller = data.agent_name ? `The agent ${data.agent_name}` : "The model";
    this.field = element("textarea", { value: JSON.stringify(data.arguments, null, 2), ariaLabel: "Arguments" });
    this.approve = button("Approve", () => this.decide(true), { className: "primary" });
    this.deny = button("Deny", () => this.decide(false));
    this.remember = element("input", { type: "checkbox" });
    this.problem = element("span", { className: "failure", role: "alert" });
    this.field.oninput = () => {
      this.approve.textContent = "Approve as edited";
      fitHeight(this.field);
    };
    this.card = element("div", { className: "card approval", role: "group", ariaLabel: "Approval" },
      element("div", {}, `${caller} wants to call a tool: `, element("code", {}, data.tool_name)), this.field,
      element("div", { className: "row" }, this.approve, this.deny,
        element("label", {}, this.remember, "for the whole conversation"), this.problem));
  }

  /** Announce the question. Move the focus to it, unless the user is writing. */
  open() {
    fitHeight(this.field);
    announce(`Approval needed: ${this.toolName}`);
    const writing = document.activeElement?.matches("textarea, input") && document.activeElement.value;
    if (!writing && !byId("message").value) this.approve.focus();
  }

  async decide(approved) {
    const body = { confirmation_id: this.data.confirmation_id, approved };
    body.remember = this.remember.checked ? "session" : "once";
    try {
      if (approved) {
        const edited = JSON.parse(this.field.value);
        if (JSON.stringify(edited) !== JSON.stringify(this.data.arguments)) body.arguments = edited;
        this.sentArguments = edited;
      }
      this.approve.disabled = this.deny.disabled = true;
      await post(`/chat/${this.sessionId}/confirm-tool`, body);
      this.onDecided();
    } catch (error) {
      this.approve.disabled = this.deny.disabled = false;
      this.problem.textContent = describe(error);
    }
  }
}
