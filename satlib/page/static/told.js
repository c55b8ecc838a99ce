// What the page says about a word: where the model looked, or what moving the light has changed.

import { contents, state, wordText } from "./state.js";

const NOUNS = ["circle", "disc", "square", "triangle", "star"]; // in captions of scenes

/**
 * What happened at a step.
 * @param {number} at its number
 */
export function told(at) {
  const { own, word } = state.steps[at];
  const text = wordText(word);
  if (!own) return `It looked at the bright part to say “${text}”.`;
  if (own.word === word) return `You put the light here. It still says “${text}”.`;
  return `You put the light here. “${wordText(own.word)}” became “${text}”. ${truth(at)}`;
}

/**
 * Whether a scene has the object whose colour or shape a step says; "" where that is not known.
 * @param {number} at the number of the step
 */
function truth(at) {
  const words = state.steps.map(({ word }) => wordText(word));
  const isColour = (/** @type {string} */ word) => contents.colours.includes(word);
  const noun = words.findIndex((word, index) => index >= at && NOUNS.includes(word));
  const colour = words.findLastIndex((word, index) => index <= noun && isColour(word));
  const says = at === noun || at === colour;
  if (!state.isScene || !says || noun < 0 || colour < 0) return "";

  const object = `${words[colour]} ${words[noun]}`;
  const isThere = contents.scenes[state.name].includes(object.replace("disc", "circle"));
  if (!isThere) return `There is no ${object}.`;
  return `There is ${/^[aeiou]/.test(object) ? "an" : "a"} ${object}.`;
}
