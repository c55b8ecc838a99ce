// The visitor moves the light: by pointing at a place and tapping it, by keyboard, or with a brush.

import { draw, previewed } from "./drawing.js";
import { ui } from "./elements.js";
import { rest, say, sayAgain } from "./sentence.js";
import { grid, lightOn, state, wordText } from "./state.js";
import { attempt, showStatus } from "./status.js";

const KEYS = "Arrows move the light, Enter puts it there, Escape lets the model look by itself.";
let toldKeys = false;

/**
 * The place under the pointer, -1 outside the picture.
 * @param {PointerEvent} event
 */
function placeAt(event) {
  if (!state.model) return -1;
  const { rows, columns, width, height } = grid();
  const scale = ui.picture.width / ui.picture.clientWidth;
  const column = Math.floor((event.offsetX * scale) / width);
  const row = Math.floor((event.offsetY * scale) / height);
  const inside = row >= 0 && row < rows && column >= 0 && column < columns;
  return inside ? row * columns + column : -1;
}

/** @param {number} place under the pointer, or chosen by keyboard */
function hover(place) {
  if (place === state.hovered) return;
  state.hovered = place;
  if (state.walking) rest();
  else draw();
}

/** All light goes to a place, for the chosen word. */
function look() {
  const isReady = !ui.paint.disabled && state.hovered >= 0;
  if (isReady) continueWith(lightOn(state.hovered), true);
}

/**
 * Go on from the chosen word, with light.
 * @param {Float32Array} light (L,)
 * @param {boolean} once for this word alone
 */
function continueWith(light, once) {
  if (!light.some(Boolean)) return; // all that was painted is wiped
  const before = state.steps.slice(0, Math.max(state.current, 0));
  const words = before.map(({ word }) => word);
  setPainting(false);
  attempt(() => say({ words, light, once }));
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
  if (state.painting && isPressed) paint(1);
}

export function pointerLeave() {
  hover(-1);
}

/** @param {PointerEvent} event */
export function pointerUp(event) {
  const isMainButton = event.button === 0;
  if (state.painted) continueWith(state.painted, false);
  else if (isMainButton && !state.painting) look();
}

// --- The brush ---------------------------------------------------------------------------------

/** @param {boolean} begins */
export function setPainting(begins) {
  state.painting = begins;
  state.painted = null;
  ui.paint.ariaPressed = String(begins);
  ui.picture.classList.toggle("painting", begins);
  if (begins) {
    toldKeys = true; // others hold now
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
 * Paint the place under the pointer, or wipe it.
 * @param {number} value 1 or 0
 */
function paint(value) {
  if (state.hovered < 0) return;
  const { rows, columns } = grid();
  state.painted ??= new Float32Array(rows * columns);
  state.painted[state.hovered] = value;
  draw();
}

// --- The keyboard ------------------------------------------------------------------------------

/** The hint comes once, to those who reach the picture by keyboard. */
export function focused() {
  if (!toldKeys && ui.picture.matches(":focus-visible")) {
    toldKeys = true;
    showStatus(KEYS);
  }
  draw();
}

/**
 * Arrows choose a place, Enter moves the light there, and Escape lets the model look by itself. With
 * the brush, space paints or wipes the place, and Enter ends.
 * @param {KeyboardEvent} event
 */
export function keyDown(event) {
  if (!state.model || state.current < 0) return;
  const { rows, columns } = grid();
  // From where the light is, before the first arrow.
  const { alpha } = state.steps[state.current];
  const place = state.hovered < 0 ? alpha.indexOf(Math.max(...alpha)) : state.hovered;
  let row = Math.floor(place / columns);
  let column = place % columns;

  if (event.key === "ArrowUp") row = Math.max(row - 1, 0);
  else if (event.key === "ArrowDown") row = Math.min(row + 1, rows - 1);
  else if (event.key === "ArrowLeft") column = Math.max(column - 1, 0);
  else if (event.key === "ArrowRight") column = Math.min(column + 1, columns - 1);
  else if (event.key === " " && state.painting) paint(1 - (state.painted?.[place] ?? 0));
  else if (event.key === "Enter" && state.painted) continueWith(state.painted, false);
  else if (event.key === "Enter" && !state.painting) look();
  else if (event.key === "Escape" && state.painting) setPainting(false);
  else if (event.key === "Escape") sayAgain();
  else return;
  event.preventDefault(); // the page would scroll

  if (!event.key.startsWith("Arrow")) return;
  hover(row * columns + column);
  const preview = previewed();
  const word = preview ? `: “${wordText(preview.word)}”` : "";
  showStatus(`Row ${row + 1}, column ${column + 1}${word}`);
}
