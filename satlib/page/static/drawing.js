// Draws everything that depends on the caption and on the word that is chosen: the lit picture, the
// words, the ring, and what is known of the word.

import { ui } from "./elements.js";
import { lit, upsample } from "./light.js";
import { placeBox, state, wordText } from "./state.js";
import { storedStep } from "./stored.js";

/** @typedef {import("./captioner.js").Step} Step */

/** The canvas of the picture, which is also read from. */
export const context = () =>
  /** @type {CanvasRenderingContext2D} */ (
    ui.picture.getContext("2d", { willReadFrequently: true })
  );

/** Draw the page anew. */
export function draw() {
  const { current, steps } = state;
  const preview = previewed();
  drawPicture(preview);
  drawWords(preview);
  drawRing(preview);
  drawDetails(preview ?? steps[current] ?? null);

  for (const button of [ui.paint, ui.save]) {
    button.disabled = state.saying || !steps.length;
  }
  ui.clear.disabled = state.saying || !state.light;
  ui.link.disabled = state.saying || !state.stored; // a photograph of one's own has none
}

/** The current step as it would be with all light under the pointer, where that is stored. */
export function previewed() {
  const { current, hovered, light, painting, saying, steps } = state;
  const isThere = steps[current]?.own && light?.[hovered]; // it is what is shown
  if (saying || painting || isThere) return null;
  return storedStep(current, hovered);
}

/**
 * The picture, lit by a map.
 * @param {Float32Array} alpha (L,)
 */
function litBy(alpha) {
  const { model, picture } = state;
  if (!picture || !model) throw new Error("there is nothing to light");
  const map = upsample(alpha, model.manifest.grid, picture.width, picture.height);
  return lit(picture, map);
}

/**
 * The picture, lit by the map of a step.
 * @param {number} at the number of the step
 */
export function litAt(at) {
  const image = state.litPictures.get(at) ?? litBy(state.steps[at].alpha);
  state.litPictures.set(at, image);
  return image;
}

/** @param {Step | null} preview */
function drawPicture(preview) {
  const { current, painted, picture, steps } = state;
  if (picture) {
    let image = picture;
    if (state.painting) {
      if (painted) image = litBy(painted);
    } else if (preview) {
      image = litBy(preview.alpha);
    } else if (current >= 0) {
      image = litAt(current);
    }
    context().putImageData(image, 0, 0);
  }
  drawCursor();

  let label = "The picture";
  if (current >= 0) {
    const text = wordText(steps[current].word);
    const whose = steps[current].own ? "you put the light" : "the model looked";
    label += `, bright where ${whose} for "${text}"`;
  }
  ui.picture.setAttribute("aria-label", label);
}

/** A frame around the place that the keyboard has chosen. */
function drawCursor() {
  if (state.hovered < 0 || !ui.picture.matches(":focus-visible")) return;
  const { left, top, width, height } = placeBox(state.hovered);
  const canvas = context();

  const frame = (/** @type {string} */ colour, /** @type {number} */ thickness) => {
    canvas.lineWidth = thickness;
    canvas.strokeStyle = colour;
    canvas.strokeRect(left + 3, top + 3, width - 6, height - 6);
  };

  // White in black can be seen on any picture.
  frame("#000", 6);
  frame("#fff", 2);
}

/** @param {Step | null} preview */
function drawWords(preview) {
  const { current, kept, steps } = state;
  while (ui.words.children.length > steps.length) ui.words.lastChild?.remove();

  steps.forEach((step, index) => {
    // A button that is there already stays, and with it the keyboard's focus.
    const button = /** @type {HTMLElement} */ (
      ui.words.children[index] ?? ui.words.appendChild(document.createElement("button"))
    );
    const isPreview = index === current && preview !== null;
    const text = wordText((isPreview ? preview : step).word);

    button.className = "";
    button.classList.toggle("given", index < kept);
    button.classList.toggle("end", text === "end");
    button.classList.toggle("over", isPreview);
    // What it would have said by itself is struck out beside it.
    if (step.own && step.own.word !== step.word) button.dataset.was = wordText(step.own.word);
    else delete button.dataset.was;
    button.textContent = text;
    button.ariaPressed = String(index === current);
  });
}

/**
 * Where the visitor puts the light, a faint ring lies where the model would look by itself; before
 * that, a ring where it looked when it named another object.
 * @param {Step | null} preview
 */
function drawRing(preview) {
  const { current, hint, steps } = state;
  const own = (preview ?? steps[current])?.own;
  const alpha = own?.alpha ?? steps[hint]?.alpha;
  ui.ring.classList.toggle("own", Boolean(own));
  ui.ring.hidden = !alpha || current < 0 || state.painting;
  if (!alpha || ui.ring.hidden) return;

  const brightest = alpha.indexOf(Math.max(...alpha));
  const { left, top, width, height } = placeBox(brightest);
  // In percent: the page scales the canvas.
  ui.ring.style.left = `${(100 * (left + width / 2)) / ui.picture.width}%`;
  ui.ring.style.top = `${(100 * (top + height / 2)) / ui.picture.height}%`;
}

/**
 * The likeliest words.
 * @param {Step | null} step
 */
function drawDetails(step) {
  const rows = [];
  for (const { word, p } of step?.best ?? []) {
    rows.push(probabilityRow(wordText(word), p, word === step?.word));
  }
  ui.best.replaceChildren(...rows);
}

/**
 * A row of the table: a word, a bar, and its probability.
 * @param {string} text
 * @param {number} p
 * @param {boolean} isChosen
 */
function probabilityRow(text, p, isChosen) {
  const row = document.createElement("tr");
  row.insertCell().textContent = text;
  row.classList.toggle("said", isChosen);

  const meter = document.createElement("meter");
  meter.value = p;
  meter.ariaLabel = `probability of ${text}`;
  row.insertCell().append(meter);

  const decimals = p < 0.1 ? 1 : 0;
  row.insertCell().textContent = `${(100 * p).toFixed(decimals)} %`;
  return row;
}
