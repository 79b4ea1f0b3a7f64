// Helpers that build and change the page.

export const byId = (id) => document.getElementById(id);

/** Create an element with properties and children. Strings become text nodes, never HTML. */
export function element(tag, properties = {}, ...children) {
  const created = Object.assign(document.createElement(tag), properties);
  created.append(...children);
  return created;
}

export function button(label, onclick, properties = {}) {
  return element("button", { type: "button", onclick, ...properties }, label);
}

/** Run a change of the page. Keep the newest text visible if the user has not scrolled up. */
export function keepAtEnd(change) {
  const view = byId("view");
  const atEnd = view.scrollHeight - view.scrollTop - view.clientHeight < 100;
  const result = change();
  if (atEnd) view.scrollTop = view.scrollHeight;
  return result;
}

export function showStatus(text) {
  byId("status").textContent = text;
}

/** Let screen readers read a text aloud. */
export function announce(text) {
  byId("announcer").textContent = text;
}

/** Fit the height of a text field to its text. */
export function fitHeight(field) {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}

export const shortNumber = (number) => (number >= 1000 ? `${+(number / 1000).toFixed(1)}k` : `${number}`);
