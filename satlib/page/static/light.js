// From a map to a lit picture, with the numbers of satlib.evaluation.overlay: where the map is at its maximum the picture keeps its colours,
// elsewhere it loses them and is dimmed. So the map can be read without colour vision too.

const DIMMED = 0.55; // of a pixel's value, where there is no attention
const LUMA = [0.299, 0.587, 0.114];

/** @type {Map<string, Float64Array[]>} */
const smoothings = new Map();

/**
 * How much each cell counts in each pixel of a line: cells fill their pixels, then a Gaussian of one cell smooths them. The line
 * is mirrored at its ends.
 * @param {number} cells
 * @param {number} pixels
 */
function smoothing(cells, pixels) {
  const key = `${cells} ${pixels}`;
  const made = smoothings.get(key) ?? smooth(cells, pixels);
  smoothings.set(key, made);
  return made;
}

/** @param {number} cells @param {number} pixels */
function smooth(cells, pixels) {
  const sigma = pixels / cells;
  const radius = Math.floor(4 * sigma + 0.5);
  const kernel = Float64Array.from({ length: 2 * radius + 1 }, (_, k) => Math.exp(-0.5 * ((k - radius) / sigma) ** 2));
  const sum = kernel.reduce((total, value) => total + value, 0);
  return Array.from({ length: pixels }, (_, x) => {
    const weights = new Float64Array(cells);
    kernel.forEach((value, k) => {
      const at = (((x + k - radius) % (2 * pixels)) + 2 * pixels) % (2 * pixels);
      const mirrored = Math.min(at, 2 * pixels - 1 - at);
      weights[Math.min(cells - 1, Math.floor(((mirrored + 0.5) * cells) / pixels))] += value / sum;
    });
    return weights;
  });
}

/**
 * A map in pixels: satlib.evaluation.overlay.upsample.
 * @param {Float32Array} alpha (rows, columns)
 * @param {[number, number]} grid rows and columns
 * @param {number} width
 * @param {number} height
 */
export function upsample(alpha, [rows, columns], width, height) {
  const [down, across] = [smoothing(rows, height), smoothing(columns, width)];
  const map = new Float32Array(width * height);
  const line = new Float64Array(columns);
  for (let y = 0; y < height; y++) {
    for (let column = 0; column < columns; column++) {
      line[column] = down[y].reduce((sum, weight, row) => sum + weight * alpha[row * columns + column], 0);
    }
    for (let x = 0; x < width; x++) {
      let sum = 0; // a plain loop: it runs for each pixel, whenever the light moves
      for (let column = 0; column < columns; column++) sum += across[x][column] * line[column];
      map[y * width + x] = sum;
    }
  }
  return map;
}

/**
 * Light a picture by a map; pixels outside the part that the encoder saw count as unattended.
 * @param {ImageData} picture
 * @param {Float32Array} map of that part
 * @param {{left: number, top: number, width: number, height: number}} part in pixels of the picture
 * @returns {ImageData}
 */
export function lit(picture, map, part) {
  const greatest = Math.max(map.reduce((most, value) => Math.max(most, value), 0), 1e-12);
  const made = new ImageData(picture.width, picture.height);
  for (let y = 0, at = 0; y < picture.height; y++) {
    for (let x = 0; x < picture.width; x++, at += 4) {
      const [column, row] = [x - part.left, y - part.top];
      const inside = column >= 0 && column < part.width && row >= 0 && row < part.height;
      const kept = inside ? map[row * part.width + column] / greatest : 0;
      const grey = LUMA[0] * picture.data[at] + LUMA[1] * picture.data[at + 1] + LUMA[2] * picture.data[at + 2];
      for (let channel = 0; channel < 3; channel++) {
        const value = picture.data[at + channel];
        made.data[at + channel] = Math.round(kept * value + (1 - kept) * DIMMED * grey);
      }
      made.data[at + 3] = 255;
    }
  }
  return made;
}
