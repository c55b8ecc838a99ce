// From a map to a lit picture, with the numbers of satlib.evaluation.plots: where the map is at its
// maximum the picture keeps its colours, elsewhere it loses them and is dimmed. So the map can be
// read without colour vision too.

const DIMMED = 0.55; // of a pixel's value, where there is no attention
const LUMA = [0.299, 0.587, 0.114];

/** @type {Map<string, Float64Array[]>} by cells and pixels: few sizes come again and again */
const smoothings = new Map();

/**
 * How much each cell counts in each pixel of a line: cells fill their pixels, then a Gaussian of
 * one cell smooths them. The line is mirrored at its ends.
 * @param {number} cells
 * @param {number} pixels
 */
function smoothing(cells, pixels) {
  const key = `${cells} ${pixels}`;
  const smoothing = smoothings.get(key) ?? newSmoothing(cells, pixels);
  smoothings.set(key, smoothing);
  return smoothing;
}

/**
 * @param {number} cells
 * @param {number} pixels
 */
function newSmoothing(cells, pixels) {
  const sigma = pixels / cells;
  const radius = Math.floor(4 * sigma + 0.5);
  const kernel = new Float64Array(2 * radius + 1);
  for (let k = 0; k < kernel.length; k++) {
    kernel[k] = Math.exp(-0.5 * ((k - radius) / sigma) ** 2);
  }
  const sum = kernel.reduce((total, value) => total + value, 0);

  const smoothing = [];
  for (let x = 0; x < pixels; x++) {
    const weights = new Float64Array(cells);
    kernel.forEach((value, k) => {
      const neighbour = mirrored(x + k - radius, pixels);
      const cell = Math.floor(((neighbour + 0.5) * cells) / pixels);
      weights[Math.min(cells - 1, cell)] += value / sum;
    });
    smoothing.push(weights);
  }
  return smoothing;
}

/**
 * The pixel that a pixel outside the line shows, where the line is mirrored at its ends.
 * @param {number} x
 * @param {number} pixels of the line
 */
function mirrored(x, pixels) {
  const period = 2 * pixels;
  const at = ((x % period) + period) % period;
  return Math.min(at, period - 1 - at);
}

/**
 * A map in pixels: satlib.evaluation.plots.upsample.
 * @param {Float32Array} alpha (rows, columns)
 * @param {[number, number]} grid rows and columns
 * @param {number} width
 * @param {number} height
 * @returns {Float32Array} (height, width)
 */
export function upsample(alpha, [rows, columns], width, height) {
  const down = smoothing(rows, height);
  const across = smoothing(columns, width);
  const map = new Float32Array(width * height);
  const line = new Float64Array(columns);

  // First down, then across. The loops are plain, since they run whenever the light moves.
  for (let y = 0; y < height; y++) {
    for (let column = 0; column < columns; column++) {
      let sum = 0;
      for (let row = 0; row < rows; row++) sum += down[y][row] * alpha[row * columns + column];
      line[column] = sum;
    }
    for (let x = 0; x < width; x++) {
      let sum = 0;
      for (let column = 0; column < columns; column++) sum += across[x][column] * line[column];
      map[y * width + x] = sum;
    }
  }
  return map;
}

/**
 * Light a picture by a map.
 * @param {ImageData} picture
 * @param {Float32Array} map of its pixels
 * @returns {ImageData}
 */
export function lit(picture, map) {
  const greatest = map.reduce((most, value) => Math.max(most, value), 0);
  const maximum = Math.max(greatest, 1e-12); // a map of zeros lights nothing
  const from = picture.data;
  const image = new ImageData(picture.width, picture.height);
  const to = image.data;
  for (let pixel = 0, at = 0; pixel < map.length; pixel++, at += 4) {
    const kept = map[pixel] / maximum;
    const grey = LUMA[0] * from[at] + LUMA[1] * from[at + 1] + LUMA[2] * from[at + 2];
    for (let channel = 0; channel < 3; channel++) {
      const value = from[at + channel];
      to[at + channel] = Math.round(kept * value + (1 - kept) * DIMMED * grey);
    }
    to[at + 3] = 255;
  }
  return image;
}

/**
 * The number of the step with the sharpest map, of those that say a content word, if any does.
 * @param {import("./captioner.js").Step[]} steps
 * @param {import("./captioner.js").Manifest} manifest
 */
export function sharpest(steps, { repeatable, words }) {
  const concentrations = steps.map(({ alpha, word }) => {
    const isContent = word !== words.end && !repeatable?.includes(word);
    return isContent ? alpha.reduce((sum, share) => sum + share ** 2, 0) : -1;
  });
  return concentrations.indexOf(Math.max(...concentrations));
}
