// Images: the attachments of the next message, and the stored images of a session.

import { send } from "./api.js";
import { button, byId, element, showStatus } from "./page.js";

let attached = [];  // data URLs

/** Return the attached images as data URLs and remove them from the composer. */
export function takeAttachments() {
  const images = attached;
  attachImages([]);
  return images;
}

export function attachImages(images) {
  attached = images;
  byId("attachments").replaceChildren(...images.map((image, position) => {
    const name = `Image ${position + 1}`;
    const discard = () => attachImages(attached.filter((_, other) => other !== position));
    return element("span", { className: "attachment" },
      element("img", { src: image, alt: name }), button("×", discard, { ariaLabel: `Remove ${name}` }));
  }));
}

async function addFiles(files) {
  const images = [...files].filter((file) => file.type.startsWith("image/"));
  if (images.length < files.length) showStatus("Only images can be attached.");
  const read = await Promise.all(images.map(readDataUrl));
  attachImages([...attached, ...read]);
}

function readDataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/** Return an `img` element for an image of a stored message. */
export function storedImage(sessionId, { sha256 }) {
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
