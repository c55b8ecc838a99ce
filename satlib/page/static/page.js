// The page itself: what a visitor sees and does. Models run in worker.js.

import { lit, upsample } from "./light.js";

/**
 * @typedef {import("./captioner.js").Step} Step
 * @typedef {import("./captioner.js").Wish} Wish
 * @typedef {{name: string, data: string, attention: string, words: number, bytes: number}} Model
 * @typedef {{models: Model[], scenes: string[], runtime: number, files: Record<string, {bytes: number, sha256: string}>}} Contents page.json
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
  save: element("save", HTMLButtonElement),
  status: element("status", HTMLElement),
  take: element("take", HTMLButtonElement),
  temperature: element("temperature", HTMLInputElement),
  video: element("video", HTMLVideoElement),
  words: element("words", HTMLElement),
};
const PACE = matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 160; // milliseconds from word to word
/** What a model knows, by the data set that it was trained on. @type {Record<string, string>} */
const ABOUT = {
  scenes: "It was trained on 16,000 drawn scenes: two coloured shapes in front of grey and brown clutter. It knows circles, squares, triangles " +
    "and stars, and nothing else; none of the scenes here was among them.",
  "flickr8k+coco_small": "It was trained on 6,694 photographs and has words for what they show. It describes whatever it is given " +
    "and cannot say that it does not know. For research and education only, not for commercial use.",
};
/** What a visitor sees first is a colour: it changes when the light moves. */
const COLOURS = ["red", "orange", "yellow", "green", "blue", "purple"];
const BRUSH = 0.05; // radius, as a share of the longer side of what the encoder saw

/** @type {Contents} */
let contents;
/** @type {Worker} */
let worker;
/** @type {Map<number, {told: (message: any) => void, done: (message: any) => void, failed: (error: Error) => void}>} */
const waiting = new Map();
let orders = 0;

/** What is on the page. */
const shown = {
  /** @type {ImageData | null} the picture, unlit */
  picture: null,
  size: [0, 0],
  name: "",
  scene: -1,
  /** @type {{left: number, top: number, width: number, height: number}} what the encoder saw, in pixels of `picture` */
  part: { left: 0, top: 0, width: 1, height: 1 },
  /** @type {{name: string, manifest: import("./captioner.js").Manifest, vocabulary: string[]} | null} */
  model: null,
  /** @type {Step[]} */
  steps: [],
  /** @type {Map<number, ImageData>} lit pictures, by step */
  lit: new Map(),
  at: -1, // the step that is lit; -1 for none
  caption: 0, // the order that says the caption
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
  worker.postMessage({ id, do: what, ...details });
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
 * @param {number} scene its number, -1 for a photograph
 */
async function show(file, name, scene) {
  status("Opening the picture …");
  shown.saying = true;
  draw();
  const { shown: bitmap, width, height, animated } = await order("open", { file, name }).answer;
  on.picture.width = bitmap.width;
  on.picture.height = bitmap.height;
  const context = drawing();
  context.drawImage(bitmap, 0, 0);
  Object.assign(shown, { picture: context.getImageData(0, 0, bitmap.width, bitmap.height), size: [width, height], name, scene });
  const fits = (/** @type {Model} */ model) => (model.data === "scenes") === scene >= 0;
  const chosen = contents.models.find(({ name }) => name === on.model.value);
  if (!chosen || !fits(chosen)) on.model.value = (contents.models.find(fits) ?? contents.models[0]).name;
  await say([], null, animated ? "This file moves; the page takes its first picture. " : "");
}

const drawing = () => /** @type {CanvasRenderingContext2D} */ (on.picture.getContext("2d", { willReadFrequently: true }));

/** @param {FileList | null | undefined} files */
function photograph(files) {
  const file = files?.[0];
  if (file) attempt(() => show(file, file.name || "The picture", -1));
}

/** A scene that is not the one on the page; offline, one that was on it before. */
async function scene() {
  const count = contents.scenes.length;
  const first = Math.floor(Math.random() * count);
  for (let k = 0; k < count; k++) {
    const next = (first + k) % count;
    if (next === shown.scene && k < count - 1) continue;
    const response = await fetch(contents.scenes[next]).catch(() => undefined);
    if (response?.ok) return show(await response.blob(), "The scene", next);
  }
  throw new Error("No scene can be loaded: you are offline, or the server has stopped. Connect, then try again.");
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
  await show(await canvas.convertToBlob(), "The picture", -1);
}

// --- Saying ------------------------------------------------------------------------------------------------------------

const modelOf = () => /** @type {Model} */ (contents.models.find(({ name }) => name === on.model.value));

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
  const progress = loading(model);
  Object.assign(shown, { steps: [], at: -1, given: from, light, saying: true, hint: -1 });
  shown.lit.clear();
  choose();
  draw();
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
  shown.model = { ...loaded, name: model.name };
  started = true;
  status(`${remark}Looking …`);
  /** @type {Step[]} */
  const queue = [];
  const asked = order("say", { model: model.name, wish }, (message) => {
    if (message.step) queue.push(message.step);
    if (message.part) {
      const scale = /** @type {ImageData} */ (shown.picture).width / shown.size[0];
      const part = Object.entries(message.part).map(([side, value]) => [side, Math.round(scale * value)]);
      shown.part = /** @type {any} */ (Object.fromEntries(part));
    }
  });
  shown.caption = asked.id;
  let ended = false;
  asked.answer.then(() => (ended = true), () => (ended = true));
  while (!(ended && !queue.length)) {
    const step = queue.shift();
    if (shown.caption !== asked.id) return;
    if (step) {
      const follows = shown.at === shown.steps.length - 1; // unless the visitor looks at an earlier word
      shown.steps.push(step);
      const last = Math.min(shown.steps.length - 1, chosen);
      if (follows && (step.word !== loaded.manifest.words.end || shown.at < 0)) shown.at = last;
      draw();
    }
    await new Promise((resolve) => setTimeout(resolve, step && shown.steps.length <= from ? 0 : step ? PACE : 10));
  }
  await asked.answer;
  if (shown.caption !== asked.id) return;
  shown.saying = false;
  const colours = light ? [] : shown.steps.flatMap((step, index) => (COLOURS.includes(word(step.word)) ? [index] : []));
  if (colours.length > 1 && shown.scene >= 0) [shown.hint, shown.at] = colours;
  const said = word(shown.steps[shown.at].word);
  status(`${remark}It looked at the bright part to say “${said}”. Tap another part, and it has to look there. Or choose another word.`);
  draw();
}

let started = false; // the runtime has come

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
    status(`Loading the model: ${(loaded / 1e6).toFixed(1)} of ${(all / 1e6).toFixed(1)} MB`);
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

/** @param {number} at a step */
function litAt(at) {
  const { picture, part, model } = shown;
  if (!picture || !model) throw new Error("there is nothing to light");
  let made = shown.lit.get(at);
  if (!made) {
    made = lit(picture, upsample(shown.steps[at].alpha, model.manifest.grid, part.width, part.height), part);
    shown.lit.set(at, made);
  }
  return made;
}

/** Everything that depends on the caption and on the word that is chosen. */
function draw() {
  const { steps, at, picture, saying } = shown;
  if (picture && painting()) drawing().putImageData(shown.painted ? lit(picture, shown.painted, shown.part) : picture, 0, 0);
  else if (picture) drawing().putImageData(at < 0 ? picture : litAt(at), 0, 0);
  cursor();
  const said = at < 0 ? "" : word(steps[at].word);
  on.picture.setAttribute("aria-label", said ? `The picture, bright where the model looked for "${said}"` : "The picture");
  while (on.words.children.length > steps.length) on.words.lastChild?.remove();
  steps.forEach((step, index) => {
    const button = on.words.children[index] ?? on.words.appendChild(document.createElement("button"));
    button.textContent = word(step.word);
    button.className = [index < shown.given && "given", button.textContent === "end" && "end"].filter(Boolean).join(" ");
    button.ariaPressed = String(index === at);
  });
  on.ring.hidden = shown.hint < 0 || at < 0 || painting();
  if (!on.ring.hidden) {
    const { alpha } = steps[shown.hint];
    const { x, y, width, height } = cell(alpha.indexOf(Math.max(...alpha)));
    on.ring.style.left = `${(100 * (x + width / 2)) / on.picture.width}%`;
    on.ring.style.top = `${(100 * (y + height / 2)) / on.picture.height}%`;
  }
  for (const button of [on.paint, on.again, on.save]) button.disabled = saying || !steps.length;
  on.clear.disabled = saying || !shown.light;
  details(at < 0 ? null : steps[at]);
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

/** A tap is a stroke of one dab: the model looks there. @param {PointerEvent} event */
function tap(event) {
  if (on.paint.disabled || event.button) return;
  dab(event);
  goOn(true);
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
  } else if (event.key === "Enter" && shown.painted) return goOn();
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

/** Go on from the word on the page, with the light that was painted. @param {boolean} once for this word alone */
function goOn(once = false) {
  const { painted, steps, at } = shown;
  setPainting(false);
  const kept = steps.slice(0, Math.max(at, 0)).map(({ word }) => word);
  attempt(() => say(kept, painted?.some(Boolean) ? lightOf(painted) : null, "", once));
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
  on.draw.onclick = () => attempt(scene);
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
    on.picture.setPointerCapture(event.pointerId);
    brush(event);
  };
  on.picture.onpointermove = brush;
  on.picture.onpointerup = (event) => {
    if (!painting()) tap(event);
    else if (shown.painted) goOn();
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

async function begin() {
  await offline();
  const response = await fetch("page.json").catch(() => undefined);
  if (!response?.ok) throw new Error("The page is not complete: page.json cannot be loaded. Connect, then load the page again.");
  contents = await response.json();
  worker = new Worker("worker.js", { type: "module" });
  worker.onmessage = received;
  worker.onerror = () => {
    for (const { failed } of waiting.values()) failed(new Error("The page has lost its worker, perhaps for want of memory. Load it again."));
  };
  await order("begin", { files: contents.files }).answer;
  for (const { name, data, attention } of contents.models) {
    on.model.add(new Option(`${data === "scenes" ? "drawn scenes" : "photographs"}, ${attention} attention`, name));
  }
  on.draw.hidden = !contents.scenes.length;
  choose();
  listen();
  if (contents.scenes.length) await scene();
  else status("Choose a photograph.");
  // Photographs should not have to wait, nor need a network later.
  const photographs = contents.models.find(({ data }) => data !== "scenes");
  const thrifty = /** @type {any} */ (navigator).connection?.saveData;
  if (photographs && !thrifty) order("load", { model: photographs.name }).answer.catch(() => {}); // told when it is needed
}

attempt(begin);
