// Models: their words and sizes, and how they are loaded.

import { request, worker } from "./requests.js";
import { contents, state } from "./state.js";
import { hideProgress, idle, showProgress, showStatus } from "./status.js";

/**
 * @typedef {import("./state.js").Model} Model
 * @typedef {import("./state.js").ModelFiles} ModelFiles
 */

let hasRuntime = false; // a model has come, and with it the runtime

/**
 * A model's small files, which a stored caption needs; the model itself may come later.
 * @param {string} name
 * @returns {Promise<ModelFiles>}
 */
export async function smallFiles(name) {
  if (state.model?.name === name) return state.model;
  const file = async (/** @type {string} */ part) => {
    const response = await fetch(`${name}/${part}.json`);
    return response.json();
  };
  try {
    const [manifest, vocabulary] = await Promise.all([file("manifest"), file("vocabulary")]);
    return { name, manifest, vocabulary };
  } catch {
    throw new Error(
      `The words of ${name} cannot be loaded. Connect, then load the page again.`,
    );
  }
}

/**
 * Have the worker load a model, if it has not done so, and show how much of it has come.
 * @param {Model} model
 * @returns {Promise<ModelFiles>}
 */
export async function loadModel(model) {
  const { name } = model;
  let loaded = 0; // bytes

  const showLoaded = (/** @type {{bytes?: number}} */ { bytes }) => {
    if (!bytes) return;
    loaded += bytes; // fewer than none if a damaged file is loaded again
    const all = model.bytes + (hasRuntime ? 0 : contents.runtime);
    showProgress(loaded / all);
    if (state.saying) showStatus(`Loading the model: ${megabytes(loaded)} of ${megabytes(all)} MB`);
  };

  const { manifest, vocabulary } = await request("load", { model: name }, showLoaded).answer;
  hasRuntime = true;
  return { name, manifest, vocabulary };
}

/** @param {number} bytes */
export const megabytes = (bytes) => (bytes / 1e6).toFixed(1);

/**
 * Load the model that a picture needs: nobody should have to wait for it, nor need a network later.
 * @param {Model} model
 */
export async function loadAhead(model) {
  await worker;
  if (/** @type {any} */ (navigator).connection?.saveData) return;
  await loadModel(model).catch(() => {}); // the visitor is told when it is needed
  if (idle()) hideProgress();
}
