// Where pictures come from: the page's own, the visitor's files, and the camera.

import { readAddress } from "./address.js";
import { context, draw } from "./drawing.js";
import { ui } from "./elements.js";
import { loadAhead, smallFiles } from "./models.js";
import { newId, request, startWorker } from "./requests.js";
import { say } from "./sentence.js";
import { chooseFitting, chosenModel } from "./settings.js";
import { contents, grid, state } from "./state.js";
import { attempt, showStatus } from "./status.js";
import { storedCaption } from "./stored.js";

/**
 * @typedef {import("./address.js").Address} Address
 * @typedef {"scenes" | "photographs"} Kind
 *
 * What is known of a picture of the page.
 * @typedef {object} Known
 * @property {boolean} isScene
 * @property {string} about its line in page.json
 * @property {import("./captioner.js").Step[]} steps what the first model of its kind says
 *
 * @typedef {{file: Blob & {name?: string}, name: string, known: Known | null}} Picture
 */

/** @type {Kind[]} */
const KINDS = ["scenes", "photographs"];
const LONGEST = 448; // pixels, the longer side of the picture on the page

const OFFLINE =
  "No picture can be loaded: you are offline, or the server has stopped. Connect, then try again.";
const NO_CAMERA =
  "The camera cannot be used: there is none, or the browser was not allowed to. " +
  "Choose a photograph instead.";
const NOT_HERE =
  "The picture of this link is not here: a photograph of one's own never leaves its device.";

/** Numbers of the next pictures of the page, which come in turn. */
const next = { scenes: 0, photographs: 0 };

/** @type {Map<string, File>} the visitor's own, so that Back finds them */
const own = new Map();

let newest = 0; // what was chosen last; an older choice that is still on its way is dropped

/** @type {Promise<any>} pictures are shown in the order in which the worker opens them */
let turn = Promise.resolve();

/**
 * Open a picture, choose a model that knows its kind, and say what that sees.
 * @param {() => Promise<Picture>} fetchPicture
 * @param {Address | null} address what to show of it
 */
async function show(fetchPicture, address = null) {
  const id = begin();
  showStatus("Opening the picture …");
  state.saying = true;
  draw();
  const { file, name, known } = await fetchPicture();
  if (newest !== id) return;

  if (!known) startWorker();
  const opened = request("open", { file, name: file.name ?? "The picture" }).answer;
  const ready = known ? decoded(file) : opened;
  opened.catch(() => {}); // whoever waits for it tells the visitor
  const before = turn;
  turn = Promise.allSettled([before, ready]);
  await before;
  const { shown, width, height } = await ready;

  state.name = name;
  state.picture = fitted(shown, width, height);
  state.isScene = known?.isScene ?? false;
  state.opened = opened;
  state.stored = known?.steps ?? null;
  showCredit(known && !known.isScene ? `Photograph: ${known.about}` : "");

  chooseFitting();
  loadAhead(chosenModel());
  await (address ? sayAddress(address, id) : say());
}

/** What is being said stops: the number of the visitor's choice. */
function begin() {
  state.captionId = 0;
  state.hovered = -1;
  newest = newId();
  return newest;
}

/** Show what the address says. */
export async function showAddress() {
  const address = readAddress();
  const name = address?.picture ?? "";
  const kind = KINDS.find((each) => Object.hasOwn(contents[each], name));
  const file = own.get(name);
  if (address && name === state.name) return sayAddress(address, begin());
  if (kind) return show(() => fetchKnown(kind, name), address);
  if (file) return show(async () => ({ file, name, known: null }), address);

  const first = KINDS.find((each) => Object.keys(contents[each]).length);
  if (first) await showNext(first);
  else startWorker();
  if (address) showStatus(NOT_HERE);
  else if (!first) showStatus("Choose a photograph.");
}

/**
 * Say the sentence of an address, about the picture that is on the page.
 * @param {Address} address
 * @param {number} id of the visitor's choice
 */
async function sayAddress({ model, sentence, from, once, places, word }, id) {
  if (contents.models.some(({ name }) => name === model)) ui.model.value = model;
  const files = await smallFiles(ui.model.value);
  if (newest !== id) return;
  state.model = files;
  state.steps = [...(storedCaption() ?? [])];

  // The model says the rest itself: a link cannot put words into its mouth.
  const words = sentence.slice(0, from).map((text) => files.vocabulary.indexOf(text));
  const { rows, columns } = grid();
  const light = new Float32Array(rows * columns);
  for (const place of places) light[place] = 1;
  const isKnown = light.some(Boolean) && !words.includes(-1); // another version may differ
  await say(isKnown ? { words, light, once, word } : { word });
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
 * @param {Kind} kind
 */
export async function showNext(kind) {
  const names = Object.keys(contents[kind]);
  await show(async () => {
    for (let tries = 1; tries < names.length; tries++) {
      const name = names[next[kind]++ % names.length];
      const picture = await fetchKnown(kind, name).catch(() => null);
      if (picture) return picture;
    }
    return fetchKnown(kind, names[next[kind]++ % names.length]);
  });
}

/**
 * A picture of the page.
 * @param {Kind} kind
 * @param {string} name
 * @returns {Promise<Picture>}
 */
async function fetchKnown(kind, name) {
  const stepsFile = name.replace(/\.\w+$/, ".json");
  const [picture, steps] = await Promise.all([fetchOrNone(name), fetchOrNone(stepsFile)]);
  if (!picture?.ok || !steps?.ok) throw new Error(OFFLINE);
  const about = contents[kind][name];
  const known = { isScene: kind === "scenes", about, steps: await steps.json() };
  return { file: await picture.blob(), name, known };
}

/** @param {string} name of a file */
const fetchOrNone = (name) => fetch(name).catch(() => undefined);

/**
 * Show the first of the visitor's files, if there is one.
 * @param {FileList | File[] | null | undefined} files
 */
export function showFile(files) {
  const file = files?.[0];
  if (!file) return;
  const name = `own-${own.size + 1}`;
  own.set(name, file);
  attempt(() => show(async () => ({ file, name, known: null })));
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
  showFile([new File([await canvas.convertToBlob()], "The picture")]);
}
