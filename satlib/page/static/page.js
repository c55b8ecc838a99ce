// The page itself: what a visitor sees and does. Models run in worker.js.

import { lit, upsample } from "./light.js";
import { seen } from "./resize.js";

/**
 * @typedef {import("./captioner.js").Step} Step
 * @typedef {import("./captioner.js").Wish} Wish
 * @typedef {{name: string, data: string, attention: string, words: number, bytes: number}} Model
 * @typedef {Record<string, string>} Pictures files, and whose they are
 * @typedef {{models: Model[], scenes: Pictures, photographs: Pictures, colours: string[], runtime: number}} Contents page.json
 */

/**
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} type
 * @returns {T}
 */
function element(id, type) {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`no ${type.name} #${id}`);
  return found;
}

document.documentElement.classList.toggle("embedded", self !== top); // the page around it introduces it

const on = {
  about: element("about", HTMLElement),
  again: element("again", HTMLButtonElement),
  alert: element("alert", HTMLElement),
  beam: element("beam", HTMLInputElement),
  best: element("best", HTMLTableSectionElement),
  booth: element("booth", HTMLDialogElement),
  camera: element("camera", HTMLButtonElement),
  clear: element("clear", HTMLButtonElement),
  credit: element("credit", HTMLElement),
  draw: element("draw", HTMLButtonElement),
  file: element("file", HTMLInputElement),
  gate: element("gate", HTMLElement),
  method: element("method", HTMLSelectElement),
  model: element("model", HTMLSelectElement),
  paint: element("paint", HTMLButtonElement),
  picture: element("picture", HTMLCanvasElement),
  places: element("places", HTMLSelectElement),
  progress: element("progress", HTMLProgressElement),
  ring: element("ring", HTMLElement),
  sample: element("sample", HTMLButtonElement),
  save: element("save", HTMLButtonElement),
  status: element("status", HTMLElement),
  take: element("take", HTMLButtonElement),
  temperature: element("temperature", HTMLInputElement),
  video: element("video", HTMLVideoElement),
  words: element("words", HTMLElement),
};
const PACE = matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 160; // milliseconds from word to word
const LONGEST = 448; // pixels, the longer side of the picture on the page
/** What a model knows, by the data set that it was trained on. @type {Record<string, string>} */
const ABOUT = {
  scenes: "It was trained on 16,000 drawn scenes: two coloured shapes in front of grey and brown clutter. It knows circles, squares, triangles " +
    "and stars, and nothing else; none of the scenes here was among them.",
  "flickr8k+coco_small": "It was trained on 6,694 photographs and has words for what they show. It describes whatever it is given " +
    "and cannot say that it does not know. For research and education only, not for commercial use.",
};
const BRUSH = 0.05; // radius, as a share of the longer side of what the encoder saw

/** @type {Contents} */
let contents;
let hire = () => {}; // once the first words are there: till then the processor has enough to do
const worker = new Promise((resolve) => (hire = () => resolve(undefined))).then(hired);
/** @type {Map<number, {told: (message: any) => void, done: (message: any) => void, failed: (error: Error) => void}>} */
const waiting = new Map();
let orders = 0;

/** What is on the page. */
const shown = {
  /** @type {ImageData | null} the picture, unlit */
  picture: null,
  size: [0, 0],
  name: "",
  /** @type {Promise<any>} the worker has the picture */
  opened: Promise.resolve(),
  /** @type {Step[] | null} what the first model of its kind says of a picture of the page: known before the model has come */
  known: null,
  drawn: false, // whether it is a scene
  /** @type {{left: number, top: number, width: number, height: number}} what the encoder saw, in pixels of `picture` */
  part: { left: 0, top: 0, width: 1, height: 1 },
  /** @type {{name: string, manifest: import("./captioner.js").Manifest, vocabulary: string[]} | null} */
  model: null,
  /** @type {Step[]} */
  steps: [],
  /** @type {Map<number, ImageData>} lit pictures, by step */
  lit: new Map(),
  at: -1, // the step that is lit; -1 for none
  over: -1, // the place under the pointer
  walking: false, // the light walks along a sentence that is known
  caption: 0, // the number of the caption that is being said
  saying: false,
  given: 0, // words that were kept when the light was moved
  hint: -1, // a word of another object: the ring lies where the model looked for it; -1 for no ring
  /** @type {Float32Array | null} where the model was told to look */
  light: null,
  /** @type {Float32Array | null} 1 where the brush was, for each pixel of the part that the encoder saw */
  painted: null,
  cursor: 0, // the cell of the grid that the keyboard paints
};

// --- Orders to the worker ----------------------------------------------------------------------------------------------

/**
 * @param {string} what
 * @param {object} details
 * @param {(message: any) => void} told
 * @returns {{id: number, answer: Promise<any>}}
 */
function order(what, details = {}, told = () => {}) {
  const id = ++orders;
  const answer = new Promise((done, failed) => waiting.set(id, { told, done, failed }));
  worker.then((it) => it.postMessage({ id, do: what, ...details }));
  return { id, answer };
}

/** @param {MessageEvent} message */
function received({ data }) {
  const asked = waiting.get(data.id);
  if (!asked) return;
  if (data.failed !== undefined) asked.failed(new Error(data.failed));
  else if (data.done) asked.done(data);
  else asked.told(data);
  if (data.failed !== undefined || data.done) waiting.delete(data.id);
}

let attempts = 0; // that run now

/**
 * Run something; tell the visitor what went wrong.
 * @param {() => Promise<void>} what
 */
async function attempt(what) {
  attempts++;
  on.words.ariaBusy = "true";
  try {
    on.alert.hidden = true;
    await what();
  } catch (error) {
    on.alert.textContent = error instanceof Error ? error.message : String(error);
    on.alert.hidden = false;
    status("");
    shown.saying = false;
    draw();
  } finally {
    on.words.ariaBusy = String(--attempts > 0);
    on.progress.classList.remove("busy");
  }
}

/** @param {string} text */
const status = (text) => {
  on.status.textContent = text;
};

// --- Pictures ----------------------------------------------------------------------------------------------------------

/**
 * Open a picture, choose the model that knows its kind, and say what that sees.
 * @param {Blob} file
 * @param {string} name
 * @param {{drawn: boolean, credit: string, steps: Step[]} | null} known of a picture of the page
 */
async function show(file, name, known = null) {
  if (!known) hire();
  status("Opening the picture …");
  Object.assign(shown, { saying: true, caption: 0 });
  draw();
  const opened = order("open", { file, name }).answer;
  opened.catch(() => {}); // told by whoever waits for it
  const { shown: bitmap, width, height, animated } = known ? await drawable(file) : await opened;
  const scale = LONGEST / Math.max(width, height);
  on.picture.width = Math.max(1, Math.round(scale * width));
  on.picture.height = Math.max(1, Math.round(scale * height));
  const context = drawing();
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, on.picture.width, on.picture.height);
  const picture = context.getImageData(0, 0, on.picture.width, on.picture.height);
  const drawn = Boolean(known?.drawn);
  Object.assign(shown, { picture, size: [width, height], name, opened, drawn, known: known?.steps ?? null, over: -1 });
  on.picture.dataset.name = name;
  showCredit(known?.credit ? `Photograph: ${known.credit}` : "");
  if (!fits(modelOf())) on.model.value = (contents.models.find(fits) ?? contents.models[0]).name;
  await say([], null, animated ? "This file moves; the page takes its first picture. " : "");
}

/** @param {Blob} file */
async function drawable(file) {
  const bitmap = await createImageBitmap(file);
  return { shown: bitmap, width: bitmap.width, height: bitmap.height, animated: false };
}

/** Whether a model knows pictures of this kind. @param {Model} model */
const fits = (model) => (model.data === "scenes") === shown.drawn;

/** Whose the picture is, with a link to its page. @param {string} credit */
function showCredit(credit) {
  const [before, address, after] = credit.split(/(https:[^,]+)/);
  on.credit.replaceChildren(before);
  if (!address) return;
  const link = document.createElement("a");
  Object.assign(link, { href: address, textContent: address, target: "_blank", rel: "noopener" });
  on.credit.append(link, after);
}

const drawing = () => /** @type {CanvasRenderingContext2D} */ (on.picture.getContext("2d", { willReadFrequently: true }));

/** @param {FileList | null | undefined} files */
function photograph(files) {
  const file = files?.[0];
  if (file) attempt(() => show(file, file.name || "The picture"));
}

const turn = { scenes: 0, photographs: 0 }; // the next one of each

/** Show the next picture of the page; offline, one that was on it before. @param {"scenes" | "photographs"} kind */
async function bundled(kind) {
  const names = Object.keys(contents[kind]);
  for (let tries = 0; tries < names.length; tries++) {
    const name = names[turn[kind]++ % names.length];
    const files = [name, name.replace(/\.\w+$/, ".json")];
    const [picture, steps] = await Promise.all(files.map((file) => fetch(file).catch(() => undefined)));
    if (!picture?.ok || !steps?.ok) continue;
    return show(await picture.blob(), name, { drawn: kind === "scenes", credit: contents[kind][name], steps: await steps.json() });
  }
  throw new Error("No picture can be loaded: you are offline, or the server has stopped. Connect, then try again.");
}

async function openCamera() {
  const stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } }).catch(() => {
    throw new Error("The camera cannot be used: there is none, or the browser was not allowed to. Choose a photograph instead.");
  });
  on.take.disabled = true;
  on.video.onloadeddata = () => (on.take.disabled = false);
  on.video.srcObject = stream;
  on.booth.showModal();
  on.booth.onclose = () => stream.getTracks().forEach((track) => track.stop());
}

async function take() {
  const canvas = new OffscreenCanvas(on.video.videoWidth, on.video.videoHeight);
  /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d")).drawImage(on.video, 0, 0);
  on.booth.close();
  await show(await canvas.convertToBlob(), "The picture");
}

// --- Saying ------------------------------------------------------------------------------------------------------------

const modelOf = () => /** @type {Model} */ (contents.models.find(({ name }) => name === on.model.value));

/** A model's words and sizes, which are small and come before it. @param {string} name */
async function described(name) {
  const parts = ["manifest", "vocabulary"].map(async (part) => (await fetch(`${name}/${part}.json`)).json());
  const [manifest, vocabulary] = await Promise.all(parts).catch(() => {
    throw new Error(`The words of ${name} cannot be loaded. Connect, then load the page again.`);
  });
  return { name, manifest, vocabulary };
}

/** What the chosen model says of the picture, where that is known. */
function known() {
  const first = contents.models.find(fits)?.name === on.model.value;
  return first && on.method.value === "greedy" && on.places.value === "mean" ? shown.known : null;
}

/**
 * The step at a word with all light on one place; null where it is not known.
 * @param {number} at
 * @param {number} place
 * @returns {Step | null}
 */
function forced(at, place) {
  const steps = place < 0 ? null : known();
  const step = steps?.[at];
  if (!step?.places || !step.percent) return null;
  if (shown.steps.slice(0, at).some(({ word }, index) => word !== steps?.[index].word)) return null;
  const word = step.places[place];
  const p = step.percent[place] / 100;
  return { ...step, word, p, best: [{ word, p }], alpha: only(place) };
}

/** All light on one place. @param {number} place */
function only(place) {
  const { rows, columns } = grid();
  const light = new Float32Array(rows * columns);
  light[place] = 1;
  return light;
}

/** @param {{name: string, manifest: import("./captioner.js").Manifest, vocabulary: string[]}} model */
function use(model) {
  const [width, height] = shown.size;
  const scale = on.picture.width / width;
  const part = Object.entries(seen(width, height, model.manifest.image.view)).map(([side, value]) => [side, Math.round(scale * value)]);
  Object.assign(shown, { model, part: Object.fromEntries(part) });
}

/** @param {number} milliseconds */
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/**
 * Say a caption, or go on after the first words of the one on the page. The word at which the light was moved stays chosen.
 * @param {number[]} words that are kept
 * @param {Float32Array | null} light where to look after them
 * @param {string} remark to begin the status with
 * @param {boolean} once the light is for the next word alone
 */
async function say(words = [], light = null, remark = "", once = true) {
  const model = modelOf();
  const from = words.length;
  const chosen = light ? from : Infinity;
  const at = light && once ? forced(from, light.indexOf(1)) : null;
  const progress = loading(model);
  Object.assign(shown, { steps: [...shown.steps.slice(0, from), ...(at ? [at] : [])], at: at ? from : from - 1 });
  const id = ++orders;
  Object.assign(shown, { caption: id, given: from, light, saying: true, walking: false, hint: -1 });
  shown.lit.clear();
  choose();
  draw();
  if (known() && !light && !from) return walk(id, remark);
  /** @type {Wish} */
  const wish = {
    words,
    light,
    once,
    method: /** @type {Wish["method"]} */ (on.method.value),
    beam: Number(on.beam.value),
    temperature: Number(on.temperature.value),
    onePlace: model.attention === "hard" && on.places.value === "one",
  };
  if (shown.model?.name !== model.name) status(`Loading the model (${(model.bytes / 1e6).toFixed(1)} MB) …`);
  const loaded = await order("load", { model: model.name }, progress).answer;
  await shown.opened;
  if (shown.caption !== id) return; // something newer is being said
  use({ ...loaded, name: model.name });
  started = true;
  status(`${remark}Looking …`);
  /** @type {Step[]} */
  const queue = [];
  const asked = order("say", { model: model.name, wish }, ({ step }) => step && queue.push(step));
  shown.caption = asked.id;
  let ended = false;
  asked.answer.then(() => (ended = true), () => (ended = true));
  for (let index = 0; !(ended && !queue.length); ) {
    const step = queue.shift();
    if (shown.caption !== asked.id) return;
    if (step) {
      const follows = shown.at === index - 1 && index <= chosen; // unless the visitor looks at an earlier word
      shown.steps[index] = step;
      shown.lit.delete(index);
      if (follows && (step.word !== loaded.manifest.words.end || shown.at < 0)) shown.at = index;
      draw();
      index++;
    }
    await pause(!step ? 10 : index <= from || shown.over >= 0 ? 0 : PACE);
  }
  await asked.answer;
  if (shown.caption !== asked.id) return;
  shown.saying = false;
  rest(remark);
}

/**
 * The light walks along a sentence that is known, until the visitor does something.
 * @param {number} id of the caption
 * @param {string} remark
 */
async function walk(id, remark) {
  const model = shown.model?.name === on.model.value ? shown.model : await described(on.model.value);
  if (shown.caption !== id) return;
  use(model);
  Object.assign(shown, { steps: [...(shown.known ?? [])], saying: false, walking: true });
  draw();
  hire();
  for (let at = 0; PACE && shown.walking && shown.caption === id && at < shown.steps.length - 1; at++) {
    shown.at = at;
    draw();
    await pause(PACE);
  }
  if (shown.walking && shown.caption === id) rest(remark);
}

/** Come to rest on a word that changes when the light moves. @param {string} remark */
function rest(remark = "") {
  const { steps, drawn, light } = shown;
  shown.walking = false;
  const colours = light ? [] : steps.flatMap((step, index) => (contents.colours.includes(word(step.word)) ? [index] : []));
  const different = steps.map(({ places }) => new Set(places).size);
  if (drawn && colours.length > 1) [shown.hint, shown.at] = colours;
  else if (!light && known()) shown.at = different.indexOf(Math.max(...different));
  const said = word(steps[shown.at].word);
  const points = known() && matchMedia("(hover: hover)").matches;
  const there = points ? "Point elsewhere: what would it say? Tap: the sentence goes on from there." : "Tap another part, and it has to look there.";
  status(`${remark}It looked at the bright part to say “${said}”. ${there}`);
  draw();
}

let started = false; // a model has come, and with it the runtime

/**
 * Shows how much of a model has come.
 * @param {Model} model
 */
function loading(model) {
  let loaded = 0;
  return (/** @type {{bytes?: number}} */ { bytes }) => {
    if (!bytes) return;
    loaded += bytes; // fewer than none if a damaged file is loaded again
    const all = model.bytes + (started ? 0 : contents.runtime);
    on.progress.classList.add("busy");
    on.progress.value = loaded / all;
    if (shown.saying) status(`Loading the model: ${(loaded / 1e6).toFixed(1)} of ${(all / 1e6).toFixed(1)} MB`);
  };
}

/** Begin again from the first word, with the model's own attention. */
const again = () => attempt(() => say());

// --- Drawing -----------------------------------------------------------------------------------------------------------

/** @param {number} id */
function word(id) {
  const { manifest, vocabulary } = /** @type {NonNullable<typeof shown.model>} */ (shown.model);
  return id === manifest.words.end ? "end" : vocabulary[id];
}

/** The picture, lit by a map. @param {Float32Array} alpha */
function lightened(alpha) {
  const { picture, part, model } = shown;
  if (!picture || !model) throw new Error("there is nothing to light");
  return lit(picture, upsample(alpha, model.manifest.grid, part.width, part.height), part);
}

/** @param {number} at a step */
function litAt(at) {
  const made = shown.lit.get(at) ?? lightened(shown.steps[at].alpha);
  shown.lit.set(at, made);
  return made;
}

/** Everything that depends on the caption and on the word that is chosen. */
function draw() {
  const { steps, at, picture, saying } = shown;
  const over = saying || painting() ? null : forced(at, shown.over);
  if (picture && painting()) drawing().putImageData(shown.painted ? lit(picture, shown.painted, shown.part) : picture, 0, 0);
  else if (picture) drawing().putImageData(over ? lightened(over.alpha) : at < 0 ? picture : litAt(at), 0, 0);
  cursor();
  const said = at < 0 ? "" : word(steps[at].word);
  on.picture.setAttribute("aria-label", said ? `The picture, bright where the model looked for "${said}"` : "The picture");
  while (on.words.children.length > steps.length) on.words.lastChild?.remove();
  steps.forEach((step, index) => {
    const button = on.words.children[index] ?? on.words.appendChild(document.createElement("button"));
    button.textContent = word((index === at && over ? over : step).word);
    const kinds = { given: index < shown.given, end: button.textContent === "end", over: index === at && over };
    button.className = Object.entries(kinds).flatMap(([kind, is]) => (is ? [kind] : [])).join(" ");
    button.ariaPressed = String(index === at);
  });
  on.ring.hidden = shown.hint < 0 || at < 0 || painting() || Boolean(over);
  if (!on.ring.hidden) {
    const { alpha } = steps[shown.hint];
    const { x, y, width, height } = cell(alpha.indexOf(Math.max(...alpha)));
    on.ring.style.left = `${(100 * (x + width / 2)) / on.picture.width}%`;
    on.ring.style.top = `${(100 * (y + height / 2)) / on.picture.height}%`;
  }
  for (const button of [on.paint, on.again, on.save]) button.disabled = saying || !steps.length;
  on.clear.disabled = saying || !shown.light;
  details(over ?? steps[at] ?? null);
}

/** @param {Step | null} step */
function details(step) {
  on.best.replaceChildren(...(step?.best ?? []).map(({ word: id, p }) => {
    const row = document.createElement("tr");
    const [name, bar, share] = [0, 1, 2].map(() => row.appendChild(document.createElement("td")));
    const meter = bar.appendChild(document.createElement("meter"));
    meter.value = p;
    meter.ariaLabel = `probability of ${word(id)}`;
    name.textContent = word(id) + (id === step?.word ? " ✓" : "");
    share.textContent = `${(100 * p).toFixed(p < 0.1 ? 1 : 0)} %`;
    return row;
  }));
  on.gate.textContent = step ? `Gate β: ${step.beta.toFixed(2)} (how much the picture counted for this word, 0 to 1)` : "";
}

/** The cell that the keyboard paints. */
function cursor() {
  if (!painting() || !on.picture.matches(":focus-visible")) return;
  const { x, y, width, height } = cell(shown.cursor);
  const context = drawing();
  for (const [colour, thick] of /** @type {[string, number][]} */ ([["#000", 6], ["#fff", 2]])) {
    context.lineWidth = thick;
    context.strokeStyle = colour;
    context.strokeRect(x + 3, y + 3, width - 6, height - 6);
  }
}

/** @param {number} at */
function look(at) {
  shown.at = Math.min(Math.max(at, 0), shown.steps.length - 1);
  shown.hint = -1;
  shown.walking = false;
  draw();
}

/** What belongs to the chosen model and way of choosing words. */
function choose() {
  const model = modelOf();
  const about = ABOUT[model.data] ?? `It was trained on the data set ${model.data}.`;
  on.about.textContent = `${about} It knows ${(model.words - 2).toLocaleString("en")} words.`; // two are marks
  for (const [id, needed] of Object.entries({
    "with-beam": on.method.value === "beam",
    "with-temperature": on.method.value === "sample",
    "with-places": model.attention === "hard",
  })) element(id, HTMLElement).hidden = !needed;
  element("beam-value", HTMLOutputElement).value = on.beam.value;
  element("temperature-value", HTMLOutputElement).value = Number(on.temperature.value).toFixed(1);
}

/** The picture with its maps, a tile for each word, as one PNG. */
async function save() {
  const { picture, steps } = shown;
  if (!picture) return;
  const columns = Math.min(4, steps.length + 1);
  const [width, height, text] = [picture.width / 2, picture.height / 2, 28];
  const canvas = new OffscreenCanvas(columns * width, Math.ceil((steps.length + 1) / columns) * (height + text));
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.fillStyle = "white";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = "black";
  context.font = "18px system-ui, sans-serif";
  for (let tile = 0; tile <= steps.length; tile++) {
    const [x, y] = [(tile % columns) * width, Math.floor(tile / columns) * (height + text)];
    const bitmap = await createImageBitmap(tile ? litAt(tile - 1) : picture);
    context.drawImage(bitmap, x, y, width, height);
    if (tile) context.fillText(word(steps[tile - 1].word), x + 4, y + height + 20, width - 8);
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await canvas.convertToBlob());
  link.download = "where-it-looked.png";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// --- The brush ---------------------------------------------------------------------------------------------------------

const painting = () => on.paint.ariaPressed === "true";

/**
 * Mark the pixels of the part that the encoder saw for which `inside` holds.
 * @param {(x: number, y: number) => boolean} inside
 * @param {number} value
 */
function mark(inside, value) {
  const { width, height } = shown.part;
  shown.painted ??= new Float32Array(width * height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) if (inside(x, y)) shown.painted[y * width + x] = value;
  }
  draw();
}

/** @param {PointerEvent} event */
function brush(event) {
  if (painting() && event.buttons & 1) dab(event);
}

/** The place under the pointer, -1 outside the part that the encoder saw. @param {PointerEvent} event */
function placeAt(event) {
  if (!shown.model) return -1;
  const { rows, columns, width, height } = grid();
  const scale = on.picture.width / on.picture.clientWidth;
  const column = Math.floor((event.offsetX * scale - shown.part.left) / width);
  const row = Math.floor((event.offsetY * scale - shown.part.top) / height);
  return row < 0 || row >= rows || column < 0 || column >= columns ? -1 : row * columns + column;
}

/** @param {number} place under the pointer */
function hover(place) {
  if (place === shown.over) return;
  shown.over = place;
  if (shown.walking) rest();
  else draw();
}

/** All light goes to the place that is tapped, for the chosen word. @param {PointerEvent} event */
function tap(event) {
  const place = placeAt(event);
  if (on.paint.disabled || event.button || place < 0) return;
  goOn(only(place), true);
}

/** @param {PointerEvent} event */
function dab(event) {
  const scale = on.picture.width / on.picture.clientWidth;
  const [left, top] = [event.offsetX * scale - shown.part.left, event.offsetY * scale - shown.part.top];
  const radius = BRUSH * Math.max(shown.part.width, shown.part.height);
  mark((x, y) => Math.hypot(x - left, y - top) < radius, 1);
}

/** The grid of the model, and the size of a cell in pixels of the picture. */
function grid() {
  const { model, part } = shown;
  const [rows, columns] = /** @type {NonNullable<typeof model>} */ (model).manifest.grid;
  return { rows, columns, width: part.width / columns, height: part.height / rows };
}

/** A cell of the grid by its number: its upper left corner and its size in pixels of the picture. @param {number} number */
function cell(number) {
  const { columns, width, height } = grid();
  return { x: shown.part.left + (number % columns) * width, y: shown.part.top + Math.floor(number / columns) * height, width, height };
}

/** @param {KeyboardEvent} event */
function brushByKey(event) {
  if (!painting()) return;
  const { rows, columns, width, height } = grid();
  let [row, column] = [Math.floor(shown.cursor / columns), shown.cursor % columns];
  if (event.key === "ArrowUp") row = Math.max(row - 1, 0);
  else if (event.key === "ArrowDown") row = Math.min(row + 1, rows - 1);
  else if (event.key === "ArrowLeft") column = Math.max(column - 1, 0);
  else if (event.key === "ArrowRight") column = Math.min(column + 1, columns - 1);
  else if (event.key === " ") {
    const middle = Math.floor((row + 0.5) * height) * shown.part.width + Math.floor((column + 0.5) * width);
    mark((x, y) => Math.floor(x / width) === column && Math.floor(y / height) === row, 1 - (shown.painted?.[middle] ?? 0));
  } else if (event.key === "Enter" && shown.painted) return goOn(lightOf(shown.painted));
  else return;
  event.preventDefault();
  shown.cursor = row * columns + column;
  draw();
}

/** The share of each cell that was painted (L,). @param {Float32Array} painted */
function lightOf(painted) {
  const { rows, columns, width, height } = grid();
  const light = new Float32Array(rows * columns);
  painted.forEach((value, at) => {
    const [x, y] = [at % shown.part.width, Math.floor(at / shown.part.width)];
    light[Math.floor(y / height) * columns + Math.floor(x / width)] += value / (width * height);
  });
  return light;
}

/**
 * Go on from the word on the page, with light.
 * @param {Float32Array} light
 * @param {boolean} once for this word alone
 */
function goOn(light, once = false) {
  const kept = shown.steps.slice(0, Math.max(shown.at, 0)).map(({ word }) => word);
  setPainting(false);
  attempt(() => say(kept, light.some(Boolean) ? light : null, "", once));
}

/** @param {boolean} begins */
function setPainting(begins) {
  on.paint.ariaPressed = String(begins);
  on.picture.tabIndex = begins ? 0 : -1;
  on.picture.classList.toggle("painting", begins);
  shown.painted = null;
  if (begins) {
    on.picture.focus();
    status(`Paint on the picture, from the word "${word(shown.steps[shown.at].word)}" on. By keyboard: arrows, space, then Enter.`);
  }
  draw();
}

// --- Beginning ---------------------------------------------------------------------------------------------------------

function listen() {
  on.draw.onclick = () => attempt(() => bundled("scenes"));
  on.sample.onclick = () => attempt(() => bundled("photographs"));
  on.file.onchange = () => {
    photograph(on.file.files);
    on.file.value = ""; // the same file may be chosen again
  };
  on.camera.hidden = !navigator.mediaDevices?.getUserMedia;
  on.camera.onclick = () => attempt(openCamera);
  on.take.onclick = () => attempt(take);
  element("cancel", HTMLButtonElement).onclick = () => on.booth.close();
  const stage = /** @type {HTMLElement} */ (on.picture.parentElement);
  document.ondragover = (event) => {
    event.preventDefault();
    stage.classList.add("over");
  };
  document.ondragleave = () => stage.classList.remove("over");
  document.ondrop = (event) => {
    event.preventDefault();
    stage.classList.remove("over");
    photograph(event.dataTransfer?.files);
  };
  document.onpaste = (event) => photograph(event.clipboardData?.files);
  on.words.onclick = ({ target }) => {
    const index = [...on.words.children].findIndex((button) => button === target);
    if (index >= 0) look(index);
  };
  on.words.onkeydown = ({ key }) => {
    if (key !== "ArrowLeft" && key !== "ArrowRight") return;
    look(shown.at + (key === "ArrowRight" ? 1 : -1));
    /** @type {HTMLElement} */ (on.words.children[shown.at]).focus();
  };
  on.beam.oninput = on.temperature.oninput = choose;
  for (const control of [on.model, on.method, on.beam, on.temperature, on.places]) control.onchange = again;
  on.again.onclick = again;
  on.save.onclick = () => attempt(save);
  on.paint.onclick = () => setPainting(!painting());
  on.clear.onclick = again;
  on.picture.onpointerdown = (event) => {
    if (painting()) on.picture.setPointerCapture(event.pointerId);
    hover(placeAt(event));
    brush(event);
  };
  on.picture.onpointermove = (event) => {
    hover(placeAt(event));
    brush(event);
  };
  on.picture.onpointerleave = on.picture.onpointercancel = () => hover(-1);
  on.picture.onpointerup = (event) => {
    if (!painting()) tap(event);
    else if (shown.painted) goOn(lightOf(shown.painted));
  };
  on.picture.onkeydown = brushByKey;
  on.picture.onblur = on.picture.onfocus = draw;
}

/** So that the page also works offline, everything it loads should pass the service worker. */
async function offline() {
  if (!navigator.serviceWorker || navigator.serviceWorker.controller) return;
  const controlled = new Promise((resolve) => navigator.serviceWorker.addEventListener("controllerchange", resolve, { once: true }));
  const patience = new Promise((resolve) => setTimeout(resolve, 3000));
  await navigator.serviceWorker.register("sw.js").then(() => Promise.race([controlled, patience]), () => {}); // not every browser may
}

async function hired() {
  await offline();
  const it = new Worker("worker.js", { type: "module" });
  it.onmessage = received;
  it.onerror = () => {
    for (const { failed } of waiting.values()) failed(new Error("The page has lost its worker, perhaps for want of memory. Load it again."));
  };
  return it;
}

async function begin() {
  const response = await fetch("page.json").catch(() => undefined);
  if (!response?.ok) throw new Error("The page is not complete: page.json cannot be loaded. Connect, then load the page again.");
  contents = await response.json();
  for (const { name, data, attention } of contents.models) {
    on.model.add(new Option(`${data === "scenes" ? "drawn scenes" : "photographs"}, ${attention} attention`, name));
  }
  on.draw.hidden = !Object.keys(contents.scenes).length;
  on.sample.hidden = !Object.keys(contents.photographs).length;
  choose();
  listen();
  prepare();
  if (!on.draw.hidden) await bundled("scenes");
  else if (!on.sample.hidden) await bundled("photographs");
  else {
    hire();
    status("Choose a photograph.");
  }
}

/** Nobody should have to wait for a model, nor need a network later. */
async function prepare() {
  await worker;
  const early = performance.getEntriesByType("resource").map(({ name }) => name); // before the service worker kept them
  for (const address of early) fetch(address).catch(() => {});
  if (/** @type {any} */ (navigator).connection?.saveData) return;
  const one = (/** @type {boolean} */ drawn) => contents.models.find(({ data }) => (data === "scenes") === drawn);
  for (const model of [one(true), one(false)]) {
    if (!model) continue;
    await order("load", { model: model.name }, loading(model)).answer.catch(() => {}); // told when it is needed
    started = true;
    if (attempts === 0) on.progress.classList.remove("busy");
  }
}

attempt(begin);
