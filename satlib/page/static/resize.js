// The square that the encoder sees, with the pixels that satlib.data.images.square gives: Pillow's resampling, in its own fixed-point
// arithmetic. A browser's canvas resizes differently, and the sentence changes with it.

export const SIDE = 224; // pixels
const MARGIN = 256; // the view "crop" scales the shorter side to this, then takes the centre
const BITS = 22; // after the binary point, in Pillow's weights
const STRIP = 256; // rows or columns that are read at once: a photograph of 40 megapixels never lies in memory as bytes

/**
 * A picture that is read part by part, as opaque RGBA.
 * @typedef {(left: number, top: number, width: number, height: number) => Uint8ClampedArray} Part
 * @typedef {{width: number, height: number, part: Part}} Source
 *
 * A part of a picture, in its pixels.
 * @typedef {{left: number, top: number, width: number, height: number}} Box
 *
 * For each output pixel the first input pixel and the weights of it and those that follow.
 * @typedef {{first: number, weights: Int32Array}[]} Filter
 */

/** @param {number} x */
function hamming(x) {
  if (x === 0) return 1;
  const angle = Math.PI * Math.abs(x);
  return angle >= Math.PI ? 0 : (Math.sin(angle) / angle) * (Math.fround(0.54) + Math.fround(0.46) * Math.cos(angle));
}

/** @param {number} x */
const bilinear = (x) => Math.max(0, 1 - Math.abs(x));

/**
 * Both filters reach one output pixel to each side, or one input pixel when they enlarge.
 * @param {number} size of the input
 * @param {number} out size of the output
 * @param {(x: number) => number} kernel
 * @returns {Filter}
 */
function filter(size, out, kernel) {
  const scale = size / out;
  const reach = Math.max(scale, 1);
  return Array.from({ length: out }, (_, position) => {
    const centre = (position + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - reach + 0.5));
    const end = Math.min(size, Math.trunc(centre + reach + 0.5));
    const exact = Array.from({ length: end - first }, (_, k) => kernel((first + k - centre + 0.5) / reach));
    const sum = exact.reduce((total, weight) => total + weight, 0);
    return { first, weights: Int32Array.from(exact, (weight) => Math.trunc((weight / sum) * 2 ** BITS + 0.5)) };
  });
}

/** Python's round(n / 2): halves go to the even neighbour. @param {number} n */
function half(n) {
  const down = Math.floor(n / 2);
  return n % 2 && down % 2 ? down + 1 : down;
}

/**
 * How a view turns a picture into the square: its size once it is scaled, and the square's corner in that.
 * @param {number} width
 * @param {number} height
 * @param {string} view
 */
function plan(width, height, view) {
  if (view === "whole" || (width === SIDE && height === SIDE)) {
    return { width: SIDE, height: SIDE, left: 0, top: 0, kernel: hamming };
  }
  const scaled = [width, height].map((side) => Math.floor((MARGIN * side) / Math.min(width, height)));
  const [left, top] = scaled.map((side) => half(side - SIDE));
  return { width: scaled[0], height: scaled[1], left, top, kernel: bilinear };
}

/**
 * The part of a picture that a view keeps, as satlib.data.images.seen_box gives it.
 * @param {number} width
 * @param {number} height
 * @param {string} view
 * @returns {Box}
 */
export function seen(width, height, view) {
  const to = plan(width, height, view);
  const [across, down] = [width / to.width, height / to.height];
  return { left: to.left * across, top: to.top * down, width: SIDE * across, height: SIDE * down };
}

/**
 * The input of the encoder, (3, SIDE, SIDE), 0 to 255.
 * @param {Source} source
 * @param {string} view "whole" or "crop"
 */
export function square(source, view) {
  const { width, height, left, top, kernel } = plan(source.width, source.height, view);
  const columns = filter(source.width, width, kernel).slice(left, left + SIDE);
  const rows = filter(source.height, height, kernel).slice(top, top + SIDE);
  // Pillow rounds to bytes after each direction, and begins with the height if that shrinks by more than twice what the width does
  // (seen in Pillow 13; one that begins with the width gives values that differ by 1).
  const downFirst = source.height > height && source.height - height > 2 * (source.width - width);
  const [first, second, length] = downFirst ? [rows, columns, source.width] : [columns, rows, source.height];
  const narrow = new Uint8Array(3 * SIDE * length);
  for (let k = 0; k < length; k += STRIP) {
    const count = Math.min(STRIP, length - k);
    const strip = downFirst
      ? squeezed(source.part(k, 0, count, source.height), count, 4, 4 * count, first)
      : squeezed(source.part(0, k, source.width, count), count, 4 * source.width, 4, first);
    narrow.set(strip, 3 * SIDE * k);
  }
  const bytes = squeezed(narrow, SIDE, 3, 3 * SIDE, second); // (first direction, second direction, channel)
  const [right, below] = downFirst ? [3, 3 * SIDE] : [3 * SIDE, 3];
  return Float32Array.from({ length: 3 * SIDE * SIDE }, (_, index) => {
    const [channel, y, x] = [Math.floor(index / SIDE / SIDE), Math.floor(index / SIDE) % SIDE, index % SIDE];
    return bytes[y * below + x * right + channel];
  });
}

/**
 * `count` lines of pixels, each squeezed to the length of the filter: (count, filter, 3).
 * @param {Uint8Array | Uint8ClampedArray} input
 * @param {number} count
 * @param {number} line bytes from one line to the next
 * @param {number} step bytes from one pixel of a line to the next
 * @param {Filter} filter
 */
function squeezed(input, count, line, step, filter) {
  const output = new Uint8Array(3 * count * filter.length);
  let to = 0;
  for (let row = 0; row < count; row++) {
    for (const { first, weights } of filter) {
      let from = row * line + first * step;
      let red = 1 << (BITS - 1), green = red, blue = red; // one half: the sum is rounded
      for (let k = 0; k < weights.length; k++, from += step) {
        red += weights[k] * input[from];
        green += weights[k] * input[from + 1];
        blue += weights[k] * input[from + 2];
      }
      output[to++] = Math.min(red >> BITS, 255);
      output[to++] = Math.min(green >> BITS, 255);
      output[to++] = Math.min(blue >> BITS, 255);
    }
  }
  return output;
}
