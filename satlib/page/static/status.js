// What the visitor is told: what happens now, and what went wrong.

import { draw } from "./drawing.js";
import { ui } from "./elements.js";
import { state } from "./state.js";

let running = 0; // attempts that have not ended

/** Whether nothing that the visitor asked for is running. */
export const idle = () => running === 0;

/** @param {string} text */
export function showStatus(text) {
  ui.status.textContent = text;
}

/** @param {number} share of what has to be loaded, 0 to 1 */
export function showProgress(share) {
  ui.progress.classList.add("busy");
  ui.progress.value = share;
}

export function hideProgress() {
  ui.progress.classList.remove("busy");
}

/**
 * Run something; tell the visitor what went wrong.
 * @param {() => Promise<void>} action
 */
export async function attempt(action) {
  running++;
  ui.words.ariaBusy = "true";
  try {
    ui.alert.hidden = true;
    await action();
  } catch (error) {
    ui.alert.textContent = error instanceof Error ? error.message : String(error);
    ui.alert.hidden = false;
    showStatus("");
    state.saying = false;
    draw();
  } finally {
    running--;
    ui.words.ariaBusy = String(!idle());
    hideProgress();
  }
}
