// What the page can show (page.json), and what it shows now: the one record that all other modules
// read and change.

import { ui } from "./elements.js";
import { seen } from "./resize.js";

/**
 * @typedef {import("./captioner.js").Manifest} Manifest
 * @typedef {import("./captioner.js").Step} Step
 *
 * @typedef {object} Model a model that the page offers
 * @property {string} name also of its folder
 * @property {string} data the data set that it was trained on
 * @property {string} attention
 * @property {number} words in its vocabulary
 * @property {number} bytes to load
 *
 * @typedef {Record<string, string>} Pictures files, and what is known of them
 *
 * @typedef {object} Contents page.json
 * @property {Model[]} models
 * @property {Pictures} scenes with their two objects
 * @property {Pictures} photographs with their owners and licences
 * @property {string[]} colours the words for colours in captions of scenes
 * @property {number} runtime bytes of onnxruntime-web
 *
 * @typedef {{name: string, manifest: Manifest, vocabulary: string[]}} ModelFiles its small files
 */

/** @type {Contents} */
export let contents;

export async function loadContents() {
  const response = await fetch("page.json").catch(() => undefined);
  if (!response?.ok) {
    throw new Error(
      "The page is not complete: page.json cannot be loaded. Connect, then load the page again.",
    );
  }
  contents = await response.json();
}

export const state = {
  // The picture.
  name: "", // of its file, or of a photograph of the visitor's own
  /** @type {ImageData | null} unlit */
  picture: null,
  size: [0, 0], // width and height of the file, in its own pixels
  isScene: false, // otherwise it is a photograph
  /** @type {Promise<any>} fulfilled when the worker has the picture */
  opened: Promise.resolve(),
  /** @type {Step[] | null} of a picture of the page: what the first model of its kind says */
  stored: null,

  // The model that says the caption.
  /** @type {ModelFiles | null} */
  model: null,
  /** @type {import("./resize.js").Box} what its encoder sees, in pixels of `picture` */
  part: { left: 0, top: 0, width: 1, height: 1 },

  // The caption.
  captionId: 0, // of the newest caption: whatever belongs to an older one stops
  saying: false, // its words are still coming
  walking: false, // the light walks along a caption that is known already
  /** @type {Step[]} */
  steps: [],
  kept: 0, // the number of words that were kept when the light was moved
  current: -1, // the step whose map lights the picture; -1 for none
  hint: -1, // the step that named another object, which gets the ring; -1 for no ring
  /** @type {Map<number, ImageData>} by step */
  litPictures: new Map(),

  // The light that the visitor moves.
  hovered: -1, // the place under the pointer, or that the keyboard has chosen; -1 for none
  /** @type {Float32Array | null} (L,) where the model was told to look */
  light: null,
  once: true, // for one word alone
  painting: false,
  /** @type {Float32Array | null} (L,) 1 where the brush was */
  painted: null,
};

/**
 * From now on this model says the caption.
 * @param {ModelFiles} model
 */
export function setModel(model) {
  const [width, height] = state.size;
  state.model = model;
  state.part = seen(width, height, model.manifest.image.view, ui.picture.width / width);
}

/** The model's files, where something is shown that only a model can have said. */
const model = () => /** @type {ModelFiles} */ (state.model);

/**
 * A word as the page writes it.
 * @param {number} id
 */
export function wordText(id) {
  const { manifest, vocabulary } = model();
  return id === manifest.words.end ? "end" : vocabulary[id];
}

/** The grid of the model's places, and the size of a place in pixels of the picture. */
export function grid() {
  const { part } = state;
  const [rows, columns] = model().manifest.grid;
  return { rows, columns, width: part.width / columns, height: part.height / rows };
}

/**
 * The box of a place, in pixels of the picture.
 * @param {number} place
 * @returns {import("./resize.js").Box}
 */
export function placeBox(place) {
  const { columns, width, height } = grid();
  const left = state.part.left + (place % columns) * width;
  const top = state.part.top + Math.floor(place / columns) * height;
  return { left, top, width, height };
}

/**
 * All light on one place (L,).
 * @param {number} place
 */
export function lightOn(place) {
  const { rows, columns } = grid();
  const light = new Float32Array(rows * columns);
  light[place] = 1;
  return light;
}
