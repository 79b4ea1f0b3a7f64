// The sidebar: search, open, rename and delete conversations.

import { describe, get, patch, remove } from "./api.js";
import { button, byId, element, showStatus } from "./page.js";

const LIMIT = 100;  // sessions in the list

export const titleOf = (session) => session.title ?? (session.preview || `New conversation (${session.model})`);

export class Sidebar {
  /** `actions` has the functions `currentSession()`, `open(id)`, `onChanged(id)` and `onDeleted(id)`. */
  constructor(actions) {
    this.actions = actions;
    this.latestSearch = 0;
    byId("search").oninput = () => this.refresh().catch((error) => showStatus(describe(error)));
    byId("menu").onclick = () => toggleMenu();
    byId("backdrop").onclick = () => toggleMenu(false);
  }

  /** Show the current list of sessions. While the user renames one, do nothing. */
  async refresh() {
    const search = ++this.latestSearch;
    const words = byId("search").value.trim();
    const { sessions } = await get(`/sessions?${new URLSearchParams({ limit: LIMIT, ...(words && { q: words }) })}`);
    const list = byId("sessions");
    if (search !== this.latestSearch || list.querySelector(".rename")) return;
    const focused = list.contains(document.activeElement) ? document.activeElement.closest("li").dataset.session : null;
    const entries = sessions.map((session) => new Entry(session, this.actions).box);
    list.replaceChildren(...(entries.length ? entries : [element("li", { className: "note" }, "No conversations")]));
    if (focused) entries.find((entry) => entry.dataset.session === focused)?.querySelector(".open").focus();
  }
}

/** One session in the list, with its buttons. */
class Entry {
  constructor(session, actions) {
    Object.assign(this, { id: session.session_id, title: titleOf(session), actions });
    const open = button(this.title, () => actions.open(this.id), { className: "open", title: this.title });
    if (this.id === actions.currentSession()) open.ariaCurrent = "true";
    this.buttons = [
      open,
      this.iconButton("✎", "Rename", () => this.startRenaming()),
      this.iconButton("×", "Delete", () => this.delete()),
    ];
    this.box = element("li", {}, ...this.buttons);
    this.box.dataset.session = this.id;
  }

  iconButton(icon, action, onclick) {
    return button(icon, onclick, { className: "quiet", title: action, ariaLabel: `${action} ${this.title}` });
  }

  startRenaming() {
    const field = element("input", { value: this.title, ariaLabel: "New title" });
    const form = element("form", { className: "rename" }, field);
    form.onsubmit = (event) => {
      event.preventDefault();
      this.stopRenaming();
      this.rename(field.value.trim());
    };
    form.onkeydown = (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.stopRenaming();
    };
    this.box.replaceChildren(form);
    field.select();
  }

  stopRenaming() {
    this.box.replaceChildren(...this.buttons);
    this.buttons[0].focus();
  }

  /** Store a new title. Without one, the server derives a title. */
  async rename(title) {
    try {
      await patch(`/sessions/${this.id}`, { title: title || null });
      await this.actions.onChanged(this.id);
    } catch (error) {
      showStatus(describe(error));
    }
  }

  async delete() {
    if (!confirm(`Delete "${this.title}"?`)) return;
    try {
      await remove(`/sessions/${this.id}`);
      await this.actions.onDeleted(this.id);
    } catch (error) {
      showStatus(describe(error));
    }
  }
}

/** Show or hide the sidebar on narrow screens. */
export function toggleMenu(open = byId("menu").getAttribute("aria-expanded") !== "true") {
  byId("menu").setAttribute("aria-expanded", open);
  byId("sidebar").classList.toggle("open", open);
  byId("backdrop").hidden = !open;
  if (open && byId("menu").checkVisibility()) byId("search").focus();
}
