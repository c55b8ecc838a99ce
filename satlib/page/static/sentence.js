// Says a caption, word by word, and leaves the light on one of its words.

import { record } from "./address.js";
import { draw } from "./drawing.js";
import { sharpest } from "./light.js";
import { loadModel, megabytes, smallFiles } from "./models.js";
import { newId, request, startWorker } from "./requests.js";
import { chosenModel, showModel } from "./settings.js";
import { contents, state, wordText } from "./state.js";
import { attempt, showStatus } from "./status.js";
import { storedCaption, storedStep } from "./stored.js";
import { told } from "./told.js";

/** @typedef {import("./captioner.js").Step} Step */

const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)").matches;
const PACE = reducedMotion ? 0 : 160; // milliseconds from word to word
const POLL = 10; // milliseconds from one look at what the worker has said to the next

/** @param {number} milliseconds */
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Begin again from the first word, with the model's own attention. */
export function sayAgain() {
  state.hovered = -1;
  attempt(say);
}

/**
 * Say a caption, or go on after the first words of the one on the page. The word at which the light
 * was moved stays chosen.
 * @param {object} what
 * @param {number[]} [what.words] that are kept
 * @param {Float32Array | null} [what.light] (L,) where to look after them
 * @param {boolean} [what.once] the light is for the next word alone
 * @param {number} [what.word] the step to come to rest on; -1 for one that the page chooses
 */
export async function say({ words = [], light = null, once = true, word = -1 } = {}) {
  const model = chosenModel();
  const kept = words.length;
  const stored = light && once ? storedStep(kept, light.indexOf(1)) : null;

  // Until the worker answers, the page shows the words that are kept, and what is stored.
  const id = newId();
  state.captionId = id;
  state.saying = true;
  state.walking = false;
  state.steps = state.steps.slice(0, kept);
  if (stored) state.steps.push(stored);
  state.current = state.steps.length - 1;
  state.kept = kept;
  state.hint = -1;
  state.light = light;
  state.once = once;
  state.litPictures.clear();
  showModel();
  draw();

  const caption = light ? null : storedCaption();
  if (caption) return walk(caption, id, word);

  if (state.model?.name !== model.name) {
    showStatus(`Loading the model (${megabytes(model.bytes)} MB) …`);
  }
  startWorker();
  const files = await loadModel(model);
  await state.opened;
  if (state.captionId !== id) return; // something newer is being said
  state.model = files;
  showStatus("Looking …");

  /** @type {import("./captioner.js").Wish} */
  const wish = { words, light, once };
  /** @type {Step[]} */
  const queue = [];
  const said = request("say", { model: model.name, wish }, ({ step }) => step && queue.push(step));
  state.captionId = said.id;
  await showSteps(said, queue, light ? kept : Infinity);
  if (state.captionId !== said.id) return;
  await said.answer; // throws what went wrong
  if (state.captionId !== said.id) return;
  state.saying = false;
  rest(word);
}

/**
 * Show the steps of a caption as they come, at a pace that can be read.
 * @param {{id: number, answer: Promise<any>}} said
 * @param {Step[]} queue steps that the worker has told and that are not shown yet
 * @param {number} last the light follows the words as far as this step
 */
async function showSteps({ id, answer }, queue, last) {
  let ended = false;
  const end = () => (ended = true);
  answer.then(end, end);

  let index = 0;
  while (!ended || queue.length) {
    const step = queue.shift();
    if (state.captionId !== id) return;
    if (!step) {
      await pause(POLL);
      continue;
    }
    showStep(step, index, last);
    index++;
    // Words that were kept are known, and whoever points at the picture waits for its answer.
    const atOnce = index <= state.kept || state.hovered >= 0;
    await pause(atOnce ? 0 : PACE);
  }
}

/**
 * @param {Step} step
 * @param {number} index
 * @param {number} last the light follows the words as far as this step
 */
function showStep(step, index, last) {
  state.steps[index] = step;
  state.litPictures.delete(index);

  // A visitor who looks at an earlier word is left there.
  const follows = state.current === index - 1 && index <= last;
  const isFirst = state.current < 0;
  const isEnd = step.word === state.model?.manifest.words.end;
  if (follows && (isFirst || !isEnd)) state.current = index;
  draw();
}

/**
 * The light walks along a stored caption, until the visitor does something.
 * @param {Step[]} caption
 * @param {number} id
 * @param {number} word the step to come to rest on at once; -1 to walk
 */
async function walk(caption, id, word) {
  const files = await smallFiles(chosenModel().name);
  if (state.captionId !== id) return;
  state.model = files;
  state.steps = [...caption];
  state.saying = false;
  state.walking = true;
  draw();
  startWorker();

  const goesOn = () => state.walking && state.captionId === id;
  if (PACE && word < 0) {
    // Not to the last step, which is the end.
    for (let at = 0; at < state.steps.length - 1 && goesOn(); at++) {
      state.current = at;
      draw();
      await pause(PACE);
    }
  }
  if (goesOn()) rest(word);
}

/**
 * Come to rest on a word.
 * @param {number} word the number of its step; -1 for one that shows what the light does
 */
export function rest(word = -1) {
  if (word < 0 && !state.light) word = mostTelling();
  // A visitor who looks at another word by now is left there.
  else if (word < 0 && state.current === state.kept) word = firstChanged();
  if (word >= 0) state.current = Math.min(word, state.steps.length - 1);
  tell();
}

/** The first step whose word the moved light has changed; -1 for none. */
function firstChanged() {
  return state.steps.findIndex(({ own, word }) => own && own.word !== word);
}

/** The step of a caption of the model's own that says most about attention. */
function mostTelling() {
  const colours = colourSteps();
  if (state.isScene && colours.length > 1) {
    // One for each of the two objects.
    state.hint = colours[0];
    return colours[1];
  }
  const { manifest } = /** @type {import("./state.js").ModelFiles} */ (state.model);
  return storedCaption() ? mostChangeable(state.steps) : sharpest(state.steps, manifest);
}

/** Tell what happened at the chosen word. */
function tell() {
  state.walking = false;
  if (state.saying) return draw();
  const canPoint = storedCaption() && matchMedia("(hover: hover)").matches;
  const invitation = canPoint
    ? "Point elsewhere: what would it say? Tap: the sentence goes on from there."
    : "Tap another part, and it has to look there.";
  showStatus(`${told(state.current)} ${state.light ? "" : invitation}`);
  draw();
  record();
}

/** The numbers of the steps that say a colour. */
function colourSteps() {
  /** @type {number[]} */
  const numbers = [];
  state.steps.forEach(({ word }, index) => {
    if (contents.colours.includes(wordText(word))) numbers.push(index);
  });
  return numbers;
}

/**
 * The number of the step with the most different words, by where the light is.
 * @param {Step[]} steps of a stored caption
 */
function mostChangeable(steps) {
  const counts = steps.map(({ places }) => new Set(places?.map(([word]) => word)).size);
  return counts.indexOf(Math.max(...counts));
}

/**
 * Choose a word: its map lights the picture.
 * @param {number} at the number of its step
 */
export function chooseWord(at) {
  const last = state.steps.length - 1;
  state.current = Math.min(Math.max(at, 0), last);
  state.hint = -1;
  tell();
}
