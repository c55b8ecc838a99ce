// What the visitor has chosen: the model, and how it chooses its words.

import { ui } from "./elements.js";
import { contents, state } from "./state.js";

/** @typedef {import("./state.js").Model} Model */

/** @type {Record<string, string>} what a model knows, by the data set that it was trained on */
const ABOUT = {
  scenes:
    "It was trained on 16,000 drawn scenes: two coloured shapes in front of grey and brown " +
    "clutter. It knows circles, squares, triangles and stars, and nothing else; none of the " +
    "scenes here was among them.",
  "flickr8k+coco_small":
    "It was trained on 6,694 photographs and has words for what they show. It describes " +
    "whatever it is given and cannot say that it does not know. For research and education " +
    "only, not for commercial use.",
};

/** Offer the models of the page. */
export function listModels() {
  for (const { name, data, attention } of contents.models) {
    const kind = data === "scenes" ? "drawn scenes" : "photographs";
    ui.model.add(new Option(`${kind}, ${attention} attention`, name));
  }
}

export const chosenModel = () =>
  /** @type {Model} */ (contents.models.find(({ name }) => name === ui.model.value));

/**
 * Whether a model knows pictures of the kind that is shown.
 * @param {Model} model
 */
const fits = (model) => (model.data === "scenes") === state.isScene;

/** The first model that knows pictures of the kind that is shown, if there is one. */
export const firstFitting = () => contents.models.find(fits);

/** Leave a model that does not know such pictures for one that does. */
export function chooseFitting() {
  if (fits(chosenModel())) return;
  const model = firstFitting() ?? contents.models[0];
  ui.model.value = model.name;
}

/** Show what the chosen model knows. */
export function showModel() {
  const { data, words } = chosenModel();
  const about = ABOUT[data] ?? `It was trained on the data set ${data}.`;
  const count = words - 2; // two are marks: the end, and unknown words
  ui.about.textContent = `${about} It knows ${count.toLocaleString("en")} words.`;
}
