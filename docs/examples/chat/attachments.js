// Attachments: the images and files of the next message, and those of stored messages.

import { describe, send } from "./api.js";
import { button, byId, element, showStatus } from "./page.js";

let attached = [];  // objects { name, type, data }, where `data` is a data URL

// An SVG file is a text, which the server accepts only as a file.
const isImage = ({ type }) => type.startsWith("image/") && type !== "image/svg+xml";

/** Return the attachments of the next message and remove them from the composer. */
export function takeAttachments() {
  const taken = attached;
  attach([]);
  return taken;
}

export function attach(attachments) {
  attached = attachments;
  let images = 0;
  byId("attachments").replaceChildren(...attachments.map((attachment, position) => {
    const name = isImage(attachment) ? `Image ${images += 1}` : attachment.name;
    const shown = isImage(attachment) ? element("img", { src: attachment.data, alt: name })
      : element("span", { className: "file" }, name);
    const discard = () => attach(attached.filter((_, other) => other !== position));
    return element("span", { className: "attachment" },
      shown, button("×", discard, { ariaLabel: `Remove ${name}` }));
  }));
}

/** Return the fields of a chat request for attachments. */
export function fieldsOf(attachments) {
  const images = attachments.filter(isImage).map(({ data }) => data);
  const files = attachments.filter((attachment) => !isImage(attachment)).map(({ name, data }) => ({ name, data }));
  return { ...(images.length && { images }), ...(files.length && { attachments: files }) };
}

/** Return elements for the attachments of a message that is being sent. */
export function sentElements(attachments) {
  return attachments.map((attachment) => (isImage(attachment)
    ? element("img", { src: attachment.data, alt: "Attached image" })
    : fileButton(attachment.name, () => attachment.data)));
}

/** Return elements for the images and files of a stored message. */
export function storedElements(sessionId, { images, attachments }) {
  return [
    ...(images ?? []).map((image) => storedImage(sessionId, image)),
    ...(attachments ?? []).map(({ name, sha256 }) => fileButton(name, () => storedFile(sessionId, sha256))),
  ];
}

function storedImage(sessionId, { sha256 }) {
  const image = element("img", { alt: "Attached image" });
  send(`/sessions/${sessionId}/blobs/${sha256}`)  // an `img` cannot send the API key
    .then((response) => response.blob())
    .then((blob) => {
      image.onload = () => URL.revokeObjectURL(image.src);
      image.src = URL.createObjectURL(blob);
    })
    .catch(() => { image.alt = "This image is no longer stored."; });
  return image;
}

/** Return the address of a file's bytes. */
async function storedFile(sessionId, sha256) {
  const response = await send(`/sessions/${sessionId}/files/${sha256}`);
  return URL.createObjectURL(await response.blob());
}

/** Return a button that saves a file. `findAddress` returns the address of its bytes. */
function fileButton(name, findAddress) {
  const save = async () => {
    try {
      const href = await findAddress();
      element("a", { href, download: name }).click();
      if (href.startsWith("blob:")) setTimeout(() => URL.revokeObjectURL(href));
    } catch (error) {
      showStatus(describe(error));
    }
  };
  return button(name, save, { className: "file", title: `Save ${name}` });
}

async function addFiles(files) {
  const added = [...files].map(async (file) => ({ name: file.name, type: file.type, data: await readDataUrl(file) }));
  try {
    const read = await Promise.all(added);
    attach([...attached, ...read]);
  } catch (error) {
    showStatus(`The file cannot be read: ${error.message}`);
  }
}

function readDataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

export function connectAttachments() {
  byId("attach").onclick = () => byId("files").click();
  byId("files").onchange = async () => {
    await addFiles(byId("files").files);
    byId("files").value = "";
  };
  byId("message").onpaste = (event) => {
    if (event.clipboardData.files.length) addFiles(event.clipboardData.files);
  };
  byId("composer").ondragover = (event) => event.preventDefault();
  byId("composer").ondrop = (event) => {
    event.preventDefault();
    addFiles(event.dataTransfer.files);
  };
}
