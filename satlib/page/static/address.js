// What the page shows, as its address: picture, model, sentence, where the light was moved, and the
// chosen word. A link opens exactly there, and Back works.

import { ui } from "./elements.js";
import { state, wordText } from "./state.js";
import { showStatus } from "./status.js";

/**
 * @typedef {object} Address
 * @property {string} picture
 * @property {string} model
 * @property {string[]} sentence without the end mark
 * @property {number} word that is chosen
 * @property {number} from the word from which on the light was moved
 * @property {number[]} places where the light is; none if the model looks by itself
 * @property {boolean} once whether the light is for that word alone
 */

/** The address that the browser shows; null where it says nothing of a picture. */
export function readAddress() {
  const values = new URLSearchParams(location.hash.slice(1));
  const list = (/** @type {string} */ name) => values.get(name)?.split(" ") ?? [];
  const number = (/** @type {string} */ name) => Number(values.get(name)) || 0;
  const picture = values.get("picture");
  if (!picture) return null;
  /** @type {Address} */
  const address = {
    picture,
    model: values.get("model") ?? "",
    sentence: list("sentence"),
    word: number("word"),
    from: number("from"),
    places: [...list("place"), ...list("brush")].map(Number),
    once: values.has("place"),
  };
  return address;
}

/** The address of what the page shows. */
function address() {
  const { current, kept, light, name, once, steps } = state;
  const words = steps.slice(0, -1).map(({ word }) => wordText(word));
  const values = new URLSearchParams({
    picture: name, model: ui.model.value, sentence: words.join(" "),
  });
  if (light) {
    const places = [...light.keys()].filter((place) => light[place]);
    values.set("from", String(kept));
    values.set(once ? "place" : "brush", places.join(" "));
  }
  values.set("word", String(current)); // last: see `record`
  return `#${values}`;
}

/**
 * Have the browser show the address. Back leads to what was said before; but not to each word that
 * was chosen, and not within a frame, where it belongs to the page around.
 */
export function record() {
  const next = address();
  if (next === location.hash) return;
  const withoutWord = (/** @type {string} */ hash) => hash.replace(/&word=\d+$/, "");
  const isSame = withoutWord(next) === withoutWord(location.hash);
  const inPlace = isSame || !readAddress() || self !== top;
  history[inPlace ? "replaceState" : "pushState"](null, "", next);
}

export async function copyLink() {
  await navigator.clipboard.writeText(location.href);
  showStatus("The link is copied. It opens exactly here.");
}
