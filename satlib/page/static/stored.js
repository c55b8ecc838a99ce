// What a model says of a picture of the page, stored beside it by build.js: the visitor need not
// wait for a model to read a sentence, and to see how it would change.

import { ui } from "./elements.js";
import { firstFitting } from "./settings.js";
import { lightOn, state } from "./state.js";

/** @typedef {import("./captioner.js").Step} Step */

/** The caption of the chosen model, where it is stored; null elsewhere. */
export function storedCaption() {
  return firstFitting()?.name === ui.model.value ? state.stored : null;
}

/**
 * A step of the caption with all light on one place; null where that is not stored.
 * @param {number} at the number of the step
 * @param {number} place -1 for none
 * @returns {Step | null}
 */
export function storedStep(at, place) {
  const steps = storedCaption();
  if (!steps || place < 0) return null;
  const step = steps[at];
  if (!step?.places || !step.percent) return null;

  // It holds only after the words that it was computed for.
  const before = state.steps.slice(0, at);
  if (before.some(({ word }, index) => word !== steps[index].word)) return null;

  const { percent, places, word, alpha } = step;
  const best = places[place].map((word, rank) => ({ word, p: percent[place][rank] / 100 }));
  return { ...step, ...best[0], best, alpha: lightOn(place), own: { word, alpha } };
}
