// The sidebar: search, open, rename and delete conversations.

import { describe, get, patch, remove } from "./api.js";
import { button, byId, element, showStatus } from "./page.js";

const LIMIT = 100;
let latestSearch = 0;

export const titleOf = (session) => session.title ?? (session.preview || `New conversation (${session.model})`);

/** Build the sidebar. `actions` has the functions `currentSession()`, `open(sessionId)` and `onDeleted(sessionId)`. */
export function createSidebar(actions) {
  byId("search").oninput = () => refresh().catch((error) => showStatus(describe(error)));
  byId("menu").onclick = () => toggleMenu();
  byId("backdrop").onclick = () => toggleMenu(false);

  async function refresh() {
    const search = ++latestSearch;
    const query = new URLSearchParams({ limit: LIMIT, q: byId("search").value.trim() });
    if (!query.get("q")) query.delete("q");
    const { sessions } = await get(`/sessions?${query}`);
    if (search !== latestSearch) return;  // a newer request is under way
    const items = sessions.map(item);
    byId("sessions").replaceChildren(...(items.length ? items : [element("li", { className: "note" }, "No conversations")]));
  }

  function item(session) {
    const title = titleOf(session);
    const open = button(title, () => actions.open(session.session_id), { className: "open", title });
    if (session.session_id === actions.currentSession()) open.setAttribute("aria-current", "true");
    const rename = button("✎", () => startRenaming(), { className: "quiet", ariaLabel: `Rename ${title}`, title: "Rename" });
    const discard = button("×", () => deleteSession(), { className: "quiet", ariaLabel: `Delete ${title}`, title: "Delete" });
    const entry = element("li", {}, open, rename, discard);

    function startRenaming() {
      const field = element("input", { value: title, ariaLabel: "New title" });
      const form = element("form", { className: "rename" }, field);
      form.onsubmit = (event) => {
        event.preventDefault();
        save({ title: field.value.trim() || null });
      };
      field.onkeydown = (event) => {
        if (event.key !== "Escape") return;
        event.stopPropagation();
        entry.replaceChildren(open, rename, discard);
        rename.focus();
      };
      entry.replaceChildren(form);
      field.select();
    }

    async function save(change) {
      try {
        await patch(`/sessions/${session.session_id}`, change);
        await actions.onChanged(session.session_id);
      } catch (error) {
        showStatus(describe(error));
      }
    }

    async function deleteSession() {
      if (!confirm(`Delete "${title}"?`)) return;
      try {
        await remove(`/sessions/${session.session_id}`);
        await actions.onDeleted(session.session_id);
      } catch (error) {
        showStatus(describe(error));
      }
    }

    return entry;
  }

  return { refresh };
}

/** Show or hide the sidebar on narrow screens. */
export function toggleMenu(open = byId("menu").getAttribute("aria-expanded") !== "true") {
  byId("menu").setAttribute("aria-expanded", open);
  byId("sidebar").classList.toggle("open", open);
  byId("backdrop").hidden = !open;
  if (open && byId("menu").checkVisibility()) byId("search").focus();
}
