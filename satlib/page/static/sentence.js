// Says a caption, word by word, and leaves the light on one of its words.

import { draw } from "./drawing.js";
import { loadModel, megabytes, smallFiles } from "./models.js";
import { newId, request, startWorker } from "./requests.js";
import { chosenModel, showSettings, wishFor } from "./settings.js";
import { contents, setModel, state, wordText } from "./state.js";
import { attempt, showStatus } from "./status.js";
import { storedCaption, storedStep } from "./stored.js";

/** @typedef {import("./captioner.js").Step} Step */

const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)").matches;
const PACE = reducedMotion ? 0 : 160; // milliseconds from word to word
const POLL = 10; // milliseconds from one look at what the worker has said to the next

/** @param {number} milliseconds */
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Begin again from the first word, with the model's own attention. */
export const sayAgain = () => attempt(() => say());

/**
 * Say a caption, or go on after the first words of the one on the page. The word at which the light
 * was moved stays chosen.
 * @param {number[]} words that are kept
 * @param {Float32Array | null} light where to look after them
 * @param {string} remark to begin the status with
 * @param {boolean} once the light is for the next word alone
 */
export async function say(words = [], light = null, remark = "", once = true) {
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
  state.litPictures.clear();
  showSettings();
  draw();

  const caption = light || kept ? null : storedCaption();
  if (caption) return walk(caption, id, remark);

  const wish = wishFor(words, light, once);
  if (state.model?.name !== model.name) {
    showStatus(`Loading the model (${megabytes(model.bytes)} MB) …`);
  }
  const files = await loadModel(model);
  await state.opened;
  if (state.captionId !== id) return; // something newer is being said
  setModel(files);
  showStatus(`${remark}Looking …`);

  /** @type {Step[]} */
  const queue = [];
  const said = request("say", { model: model.name, wish }, ({ step }) => step && queue.push(step));
  state.captionId = said.id;
  await showSteps(said, queue, light ? kept : Infinity);
  if (state.captionId !== said.id) return;
  await said.answer; // throws what went wrong
  if (state.captionId !== said.id) return;
  state.saying = false;
  rest(remark);
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
 * @param {string} remark to begin the status with
 */
async function walk(caption, id, remark) {
  const { name } = chosenModel();
  const files = state.model?.name === name ? state.model : await smallFiles(name);
  if (state.captionId !== id) return;
  setModel(files);
  state.steps = [...caption];
  state.saying = false;
  state.walking = true;
  draw();
  startWorker();

  const goesOn = () => state.walking && state.captionId === id;
  if (PACE) {
    // Not to the last step, which is the end.
    for (let at = 0; at < state.steps.length - 1 && goesOn(); at++) {
      state.current = at;
      draw();
      await pause(PACE);
    }
  }
  if (goesOn()) rest(remark);
}

/**
 * Come to rest on a word that changes when the light moves.
 * @param {string} remark to begin the status with
 */
export function rest(remark = "") {
  const stored = storedCaption();
  state.walking = false;
  if (!state.light) {
    const colours = colourSteps();
    if (state.isScene && colours.length > 1) {
      // One for each of the two objects.
      state.hint = colours[0];
      state.current = colours[1];
    } else if (stored) {
      state.current = mostChangeable(state.steps);
    }
  }

  const text = wordText(state.steps[state.current].word);
  const canPoint = stored && matchMedia("(hover: hover)").matches;
  const invitation = canPoint
    ? "Point elsewhere: what would it say? Tap: the sentence goes on from there."
    : "Tap another part, and it has to look there.";
  showStatus(`${remark}It looked at the bright part to say “${text}”. ${invitation}`);
  draw();
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
  const counts = steps.map(({ places }) => new Set(places).size);
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
  state.walking = false;
  draw();
}
