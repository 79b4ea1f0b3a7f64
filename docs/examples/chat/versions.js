// Switches between the versions of a message: ‹ 2 / 3 ›.

import { get, post } from "./api.js";
import { button, element } from "./page.js";

/** Return the switch of a message. `onSelected` is called when another version is shown. */
function versionSwitch(sessionId, messageId, { count, shown }, onSelected) {
  const show = (step) => showVersion(sessionId, messageId, step).then(onSelected, onSelected);
  return element("span", { className: "versions", role: "group", ariaLabel: "Versions" },
    button("‹", () => show(-1), { className: "quiet", ariaLabel: "Previous version", disabled: shown === 1 }),
    `${shown} / ${count}`,
    button("›", () => show(1), { className: "quiet", ariaLabel: "Next version", disabled: shown === count }));
}

/** Show the version before (-1) or after (1) the shown one. */
async function showVersion(sessionId, messageId, step) {
  const { versions } = await get(`/sessions/${sessionId}/versions?message_id=${messageId}`);
  const next = versions.findIndex((version) => version.is_shown) + step;
  await post(`/sessions/${sessionId}/versions/${versions[next].version_id}/select`);
}

/** Add a switch to each message that has versions. `boxes` are the turns on the page. */
export function showVersions(session, boxes, onSelected) {
  for (const old of document.querySelectorAll(".versions")) old.remove();
  let box = -1;
  for (const { role, message_id: id } of session.messages) {
    if (role === "user" || (box < 0 && role !== "system")) box += 1;
    const versions = session.versions[id];
    if (!versions) continue;
    const place = boxes[box]?.querySelector(role === "user" ? ".of-user" : ".actions:last-child");
    place?.prepend(versionSwitch(session.session_id, id, versions, onSelected));
  }
}
