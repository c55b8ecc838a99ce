// The picture with its maps, a tile for each word, as one file, which says who moved the light.

import { litAt } from "./drawing.js";
import { ui } from "./elements.js";
import { state, wordText } from "./state.js";

const COLUMNS = 4;
const TEXT = 28; // pixels, the height of a line
const FONT = "18px system-ui, sans-serif";

/** Have the browser save the tiles as a PNG. */
export async function saveTiles() {
  if (!state.picture) return;
  const canvas = await tiles(state.picture);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await canvas.convertToBlob());
  link.download = "where-it-looked.png";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** What stands below the tiles: the sentence, whose the light was, the credit, and the address. */
export function notes() {
  const { kept, light, once, steps, stored } = state;
  const words = steps.slice(0, -1).map(({ word }) => wordText(word));
  let whose = "The light is the model's own.";
  if (light) {
    const reach = once ? "at this word only" : "from this word on";
    whose = `A person put the light at “${wordText(steps[kept].word)}”, ${reach}.`;
  }
  // A photograph of one's own has no link.
  const address = stored ? location.href : location.origin + location.pathname;
  return [words.join(" "), whose, ui.credit.textContent, address].filter(Boolean);
}

/**
 * The unlit picture, then one lit for each word.
 * @param {ImageData} picture
 */
async function tiles(picture) {
  const { steps } = state;
  const count = steps.length + 1;
  const width = picture.width / 2;
  const height = picture.height / 2;
  const below = Math.ceil(count / COLUMNS) * (height + TEXT);

  const canvas = new OffscreenCanvas(COLUMNS * width, below);
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.font = FONT;
  const lines = notes().flatMap((note) => wrapped(note, context, canvas.width - 8));
  canvas.height += TEXT * lines.length + 8; // which forgets the font
  context.fillStyle = "white";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = "black";
  context.font = FONT;

  for (let tile = 0; tile < count; tile++) {
    const x = (tile % COLUMNS) * width;
    const y = Math.floor(tile / COLUMNS) * (height + TEXT);
    const bitmap = await createImageBitmap(tile ? litAt(tile - 1) : picture);
    context.drawImage(bitmap, x, y, width, height);
    if (tile) context.fillText(tileText(steps[tile - 1]), x + 4, y + height + 20, width - 8);
  }
  lines.forEach((line, at) => context.fillText(line, 4, below + TEXT * (at + 1) - 8));
  return canvas;
}

/**
 * A word; where the light is a person's, with what the model would have said by itself.
 * @param {import("./captioner.js").Step} step
 */
function tileText({ own, word }) {
  const text = wordText(word);
  return own ? `${text} (by itself: ${wordText(own.word)})` : text;
}

/**
 * A text in lines of a width; addresses have no spaces to break at.
 * @param {string} text
 * @param {OffscreenCanvasRenderingContext2D} context
 * @param {number} width
 */
function wrapped(text, context, width) {
  const lines = [""];
  for (const part of text.split(/(?<=[ +&])/)) {
    if (context.measureText(lines[lines.length - 1] + part).width > width) lines.push("");
    lines[lines.length - 1] += part;
  }
  return lines;
}
