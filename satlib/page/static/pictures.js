// Where pictures come from: the page's own, the visitor's files, and the camera.

import { context, draw } from "./drawing.js";
import { ui } from "./elements.js";
import { request, startWorker } from "./requests.js";
import { loadAhead } from "./models.js";
import { say } from "./sentence.js";
import { chooseFitting, chosenModel } from "./settings.js";
import { contents, state } from "./state.js";
import { attempt, showStatus } from "./status.js";

/**
 * A picture of the page.
 * @typedef {object} Known
 * @property {boolean} isScene
 * @property {string} about its line in page.json
 * @property {import("./captioner.js").Step[]} steps what the first model of its kind says
 */

const LONGEST = 448; // pixels, the longer side of the picture on the page

const OFFLINE =
  "No picture can be loaded: you are offline, or the server has stopped. Connect, then try again.";
const NO_CAMERA =
  "The camera cannot be used: there is none, or the browser was not allowed to. " +
  "Choose a photograph instead.";

/** Numbers of the next pictures of the page, which come in turn. */
const next = { scenes: 0, photographs: 0 };

/**
 * Open a picture, choose a model that knows its kind, and say what that sees.
 * @param {Blob} file
 * @param {string} name
 * @param {Known | null} known of a picture of the page
 */
async function show(file, name, known = null) {
  if (!known) startWorker();
  showStatus("Opening the picture …");
  state.saying = true;
  state.captionId = 0; // what is being said stops
  draw();

  const opened = request("open", { file, name }).answer;
  opened.catch(() => {}); // whoever waits for it tells the visitor
  const { shown, width, height } = known ? await decoded(file) : await opened;

  state.name = name;
  state.picture = fitted(shown, width, height);
  state.size = [width, height];
  state.isScene = known?.isScene ?? false;
  state.opened = opened;
  state.stored = known?.steps ?? null;
  state.hovered = -1;
  showCredit(known && !known.isScene ? `Photograph: ${known.about}` : "");

  chooseFitting();
  loadAhead(chosenModel());
  await say();
}

/**
 * What the worker answers of a picture; those of the page need not wait for it.
 * @param {Blob} file
 */
async function decoded(file) {
  const bitmap = await createImageBitmap(file);
  return { shown: bitmap, width: bitmap.width, height: bitmap.height };
}

/**
 * The picture in the size of the page, which the canvas takes.
 * @param {ImageBitmap} bitmap
 * @param {number} width of the file
 * @param {number} height of the file
 */
function fitted(bitmap, width, height) {
  const canvas = ui.picture;
  const scale = LONGEST / Math.max(width, height);
  canvas.width = Math.max(1, Math.round(scale * width));
  canvas.height = Math.max(1, Math.round(scale * height));

  const drawing = context();
  drawing.imageSmoothingQuality = "high";
  drawing.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return drawing.getImageData(0, 0, canvas.width, canvas.height);
}

/**
 * Whose the picture is, with a link to its page.
 * @param {string} credit
 */
function showCredit(credit) {
  const [before, address, after] = credit.split(/(https:[^,]+)/);
  ui.credit.replaceChildren(before);
  if (!address) return;
  const link = document.createElement("a");
  link.href = address;
  link.textContent = address;
  link.target = "_blank";
  link.rel = "noopener";
  ui.credit.append(link, after);
}

/**
 * Show the next picture of the page; offline, one that was on it before.
 * @param {"scenes" | "photographs"} kind
 */
export async function showNext(kind) {
  const names = Object.keys(contents[kind]);
  for (let tries = 0; tries < names.length; tries++) {
    const name = names[next[kind] % names.length];
    next[kind]++;
    const stepsFile = name.replace(/\.\w+$/, ".json");
    const [picture, steps] = await Promise.all([fetchOrNone(name), fetchOrNone(stepsFile)]);
    if (!picture?.ok || !steps?.ok) continue;

    const known = {
      isScene: kind === "scenes",
      about: contents[kind][name],
      steps: await steps.json(),
    };
    return show(await picture.blob(), name, known);
  }
  throw new Error(OFFLINE);
}

/** @param {string} name of a file */
const fetchOrNone = (name) => fetch(name).catch(() => undefined);

/**
 * Show the first of the visitor's files, if there is one.
 * @param {FileList | null | undefined} files
 */
export function showFile(files) {
  const file = files?.[0];
  if (file) attempt(() => show(file, file.name || "The picture"));
}

export async function openCamera() {
  const constraints = { video: { facingMode: "environment" } };
  const stream = await navigator.mediaDevices.getUserMedia(constraints).catch(() => {
    throw new Error(NO_CAMERA);
  });
  ui.take.disabled = true; // until there is something to take
  ui.video.onloadeddata = () => (ui.take.disabled = false);
  ui.video.srcObject = stream;
  ui.booth.showModal();
  ui.booth.onclose = () => {
    for (const track of stream.getTracks()) track.stop();
  };
}

export async function takePhotograph() {
  const canvas = new OffscreenCanvas(ui.video.videoWidth, ui.video.videoHeight);
  const drawing = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
  drawing.drawImage(ui.video, 0, 0);
  ui.booth.close();
  await show(await canvas.convertToBlob(), "The picture");
}
