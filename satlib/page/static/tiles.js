// The picture with its maps, a tile for each word, as one file.

import { litAt } from "./drawing.js";
import { state, wordText } from "./state.js";

const COLUMNS = 4; // at most
const TEXT = 28; // pixels, the height of a word below its tile

/** Have the browser save the tiles as a PNG. */
export async function saveTiles() {
  if (!state.picture) return;
  const canvas = await tiles(state.picture, state.steps);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await canvas.convertToBlob());
  link.download = "where-it-looked.png";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/**
 * The unlit picture, then one lit for each word.
 * @param {ImageData} picture
 * @param {import("./captioner.js").Step[]} steps
 */
async function tiles(picture, steps) {
  const count = steps.length + 1;
  const columns = Math.min(COLUMNS, count);
  const rows = Math.ceil(count / columns);
  const width = picture.width / 2;
  const height = picture.height / 2;

  const canvas = new OffscreenCanvas(columns * width, rows * (height + TEXT));
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.fillStyle = "white";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = "black";
  context.font = "18px system-ui, sans-serif";

  for (let tile = 0; tile < count; tile++) {
    const x = (tile % columns) * width;
    const y = Math.floor(tile / columns) * (height + TEXT);
    const bitmap = await createImageBitmap(tile ? litAt(tile - 1) : picture);
    context.drawImage(bitmap, x, y, width, height);
    if (tile) context.fillText(wordText(steps[tile - 1].word), x + 4, y + height + 20, width - 8);
  }
  return canvas;
}
