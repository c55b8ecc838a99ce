// What index.html holds, by id.

/**
 * The element with an id, which has to be there and of this type.
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} type
 * @returns {T}
 */
export function element(id, type) {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`no ${type.name} #${id}`);
  return found;
}

export const ui = {
  about: element("about", HTMLElement),
  alert: element("alert", HTMLElement),
  best: element("best", HTMLTableSectionElement),
  booth: element("booth", HTMLDialogElement),
  camera: element("camera", HTMLButtonElement),
  clear: element("clear", HTMLButtonElement),
  credit: element("credit", HTMLElement),
  draw: element("draw", HTMLButtonElement),
  file: element("file", HTMLInputElement),
  link: element("link", HTMLButtonElement),
  model: element("model", HTMLSelectElement),
  paint: element("paint", HTMLButtonElement),
  picture: element("picture", HTMLCanvasElement),
  progress: element("progress", HTMLProgressElement),
  ring: element("ring", HTMLElement),
  sample: element("sample", HTMLButtonElement),
  save: element("save", HTMLButtonElement),
  status: element("status", HTMLElement),
  take: element("take", HTMLButtonElement),
  video: element("video", HTMLVideoElement),
  words: element("words", HTMLElement),
};
