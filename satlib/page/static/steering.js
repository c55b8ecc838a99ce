// The visitor moves the light: by pointing at a place, by tapping it, or with a brush.

import { draw } from "./drawing.js";
import { ui } from "./elements.js";
import { rest, say } from "./sentence.js";
import { grid, lightOn, state, wordText } from "./state.js";
import { attempt, showStatus } from "./status.js";

const BRUSH = 0.05; // radius, as a share of the longer side of what the encoder saw

/**
 * A point of an event, in pixels of the part of the picture that the encoder saw.
 * @param {PointerEvent} event
 */
function pointAt(event) {
  const scale = ui.picture.width / ui.picture.clientWidth;
  const x = event.offsetX * scale - state.part.left;
  const y = event.offsetY * scale - state.part.top;
  return { x, y };
}

/**
 * The place under the pointer, -1 outside the part that the encoder saw.
 * @param {PointerEvent} event
 */
function placeAt(event) {
  if (!state.model) return -1;
  const { rows, columns, width, height } = grid();
  const { x, y } = pointAt(event);
  const column = Math.floor(x / width);
  const row = Math.floor(y / height);
  const inside = row >= 0 && row < rows && column >= 0 && column < columns;
  return inside ? row * columns + column : -1;
}

/** @param {number} place under the pointer */
function hover(place) {
  if (place === state.hovered) return;
  state.hovered = place;
  if (state.walking) rest();
  else draw();
}

/**
 * All light goes to the place that is tapped, for the chosen word.
 * @param {PointerEvent} event
 */
function tap(event) {
  const place = placeAt(event);
  const isMainButton = event.button === 0;
  if (ui.paint.disabled || !isMainButton || place < 0) return;
  continueWith(lightOn(place), true);
}

/**
 * Go on from the chosen word, with light.
 * @param {Float32Array} light (L,)
 * @param {boolean} once for this word alone
 */
function continueWith(light, once = false) {
  const before = state.steps.slice(0, Math.max(state.current, 0));
  const words = before.map(({ word }) => word);
  setPainting(false);
  const isDark = !light.some(Boolean);
  attempt(() => say(words, isDark ? null : light, "", once));
}

// --- The pointer -------------------------------------------------------------------------------

/** @param {PointerEvent} event */
export function pointerDown(event) {
  if (state.painting) ui.picture.setPointerCapture(event.pointerId);
  pointerMove(event);
}

/** @param {PointerEvent} event */
export function pointerMove(event) {
  hover(placeAt(event));
  const isPressed = event.buttons & 1;
  if (state.painting && isPressed) dab(event);
}

export function pointerLeave() {
  hover(-1);
}

/** @param {PointerEvent} event */
export function pointerUp(event) {
  if (!state.painting) tap(event);
  else if (state.painted) continueWith(lightOf(state.painted));
}

// --- The brush ---------------------------------------------------------------------------------

/** @param {boolean} begins */
export function setPainting(begins) {
  state.painting = begins;
  state.painted = null;
  ui.paint.ariaPressed = String(begins);
  ui.picture.tabIndex = begins ? 0 : -1;
  ui.picture.classList.toggle("painting", begins);
  if (begins) {
    ui.picture.focus();
    const text = wordText(state.steps[state.current].word);
    showStatus(
      `Paint on the picture, from the word "${text}" on. ` +
        "By keyboard: arrows, space, then Enter.",
    );
  }
  draw();
}

/**
 * Paint, or wipe, the pixels of the part that the encoder saw for which `inside` holds.
 * @param {(x: number, y: number) => boolean} inside
 * @param {number} value 1 or 0
 */
function mark(inside, value) {
  const { width, height } = state.part;
  state.painted ??= new Float32Array(width * height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (inside(x, y)) state.painted[y * width + x] = value;
    }
  }
  draw();
}

/** @param {PointerEvent} event */
function dab(event) {
  const centre = pointAt(event);
  const radius = BRUSH * Math.max(state.part.width, state.part.height);
  mark((x, y) => Math.hypot(x - centre.x, y - centre.y) < radius, 1);
}

/**
 * Arrows move the cursor, space paints or wipes its place, and Enter lets the model go on.
 * @param {KeyboardEvent} event
 */
export function keyDown(event) {
  if (!state.painting) return;
  const { rows, columns } = grid();
  let row = Math.floor(state.cursor / columns);
  let column = state.cursor % columns;
  if (event.key === "ArrowUp") row = Math.max(row - 1, 0);
  else if (event.key === "ArrowDown") row = Math.min(row + 1, rows - 1);
  else if (event.key === "ArrowLeft") column = Math.max(column - 1, 0);
  else if (event.key === "ArrowRight") column = Math.min(column + 1, columns - 1);
  else if (event.key === " ") togglePlace(row, column);
  else if (event.key === "Enter" && state.painted) return continueWith(lightOf(state.painted));
  else return;
  event.preventDefault(); // the page would scroll
  state.cursor = row * columns + column;
  draw();
}

/**
 * Paint a place, or wipe it if its middle is painted.
 * @param {number} row
 * @param {number} column
 */
function togglePlace(row, column) {
  const { width, height } = grid();
  const middleX = Math.floor((column + 0.5) * width);
  const middleY = Math.floor((row + 0.5) * height);
  const value = state.painted?.[middleY * state.part.width + middleX] ?? 0;
  mark((x, y) => Math.floor(x / width) === column && Math.floor(y / height) === row, 1 - value);
}

/**
 * The share of each place that was painted (L,).
 * @param {Float32Array} painted (height, width)
 */
function lightOf(painted) {
  const { rows, columns, width, height } = grid();
  const light = new Float32Array(rows * columns);
  painted.forEach((value, at) => {
    const y = Math.floor(at / state.part.width);
    const x = at % state.part.width;
    const row = Math.floor(y / height);
    const column = Math.floor(x / width);
    light[row * columns + column] += value / (width * height);
  });
  return light;
}
