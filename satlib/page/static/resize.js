// The square that the encoder sees, with the pixels that satlib.data.images.square gives: Pillow's
// resampling, in its own fixed-point arithmetic. A browser's canvas resizes differently, and the
// sentence changes with it.

export const SIDE = 224; // pixels
const MARGIN = 256; // the view "crop" scales the shorter side to this, then takes the centre
const BITS = 22; // after the binary point, in Pillow's weights
// Rows or columns that are read at once: a photograph of 40 megapixels never lies in memory as
// bytes.
const STRIP = 256;

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
  if (angle >= Math.PI) return 0;
  const sinc = Math.sin(angle) / angle;
  // Pillow writes 0.54f and 0.46f: single precision.
  return sinc * (Math.fround(0.54) + Math.fround(0.46) * Math.cos(angle));
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
  const lines = [];
  for (let position = 0; position < out; position++) {
    const centre = (position + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - reach + 0.5));
    const end = Math.min(size, Math.trunc(centre + reach + 0.5));

    const exact = [];
    for (let at = first; at < end; at++) exact.push(kernel((at - centre + 0.5) / reach));
    const sum = exact.reduce((total, weight) => total + weight, 0);
    const rounded = exact.map((weight) => Math.trunc((weight / sum) * 2 ** BITS + 0.5));
    lines.push({ first, weights: Int32Array.from(rounded) });
  }
  return lines;
}

/**
 * Python's round(n / 2): halves go to the even neighbour.
 * @param {number} n
 */
function half(n) {
  const down = Math.floor(n / 2);
  const isHalf = n % 2 !== 0;
  const isOdd = down % 2 !== 0;
  return isHalf && isOdd ? down + 1 : down;
}

/**
 * How a view turns a picture into the square: its size once it is scaled, and the square's corner
 * in that.
 * @param {number} width
 * @param {number} height
 * @param {string} view
 */
function plan(width, height, view) {
  if (view === "whole" || (width === SIDE && height === SIDE)) {
    return { width: SIDE, height: SIDE, left: 0, top: 0, kernel: hamming };
  }
  const shorter = Math.min(width, height);
  const scaledWidth = Math.floor((MARGIN * width) / shorter);
  const scaledHeight = Math.floor((MARGIN * height) / shorter);
  const left = half(scaledWidth - SIDE);
  const top = half(scaledHeight - SIDE);
  return { width: scaledWidth, height: scaledHeight, left, top, kernel: bilinear };
}

/**
 * The part of a picture that a view keeps, as satlib.data.images.seen_box gives it.
 * @param {number} width of the file
 * @param {number} height
 * @param {string} view
 * @param {number} shown of a pixel of the file, its size on the page
 * @returns {Box} in whole pixels of the page
 */
export function seen(width, height, view, shown) {
  const scaled = plan(width, height, view);
  const across = (shown * width) / scaled.width;
  const down = (shown * height) / scaled.height;
  return {
    left: Math.round(scaled.left * across),
    top: Math.round(scaled.top * down),
    width: Math.round(SIDE * across),
    height: Math.round(SIDE * down),
  };
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

  // Pillow rounds to bytes after each direction, and begins with the height if that shrinks by more
  // than twice what the width does (seen in Pillow 13; one that begins with the width gives values
  // that differ by 1).
  const shrinks = source.height > height;
  const downFirst = shrinks && source.height - height > 2 * (source.width - width);
  if (downFirst) {
    const flat = squashed(source, rows); // (x, row, channel)
    const bytes = squeezed(flat, SIDE, 3, 3 * SIDE, columns); // (row, column, channel)
    return channelsFirst(bytes, 3 * SIDE, 3);
  }
  const narrow = narrowed(source, columns); // (y, column, channel)
  const bytes = squeezed(narrow, SIDE, 3, 3 * SIDE, rows); // (column, row, channel)
  return channelsFirst(bytes, 3, 3 * SIDE);
}

/**
 * All rows of a picture, each squeezed: (y, column, channel).
 * @param {Source} source
 * @param {Filter} columns
 */
function narrowed({ width, height, part }, columns) {
  const output = new Uint8Array(height * SIDE * 3);
  for (let y = 0; y < height; y += STRIP) {
    const count = Math.min(STRIP, height - y);
    const strip = squeezed(part(0, y, width, count), count, 4 * width, 4, columns);
    output.set(strip, y * SIDE * 3);
  }
  return output;
}

/**
 * All columns of a picture, each squeezed: (x, row, channel).
 * @param {Source} source
 * @param {Filter} rows
 */
function squashed({ width, height, part }, rows) {
  const output = new Uint8Array(width * SIDE * 3);
  for (let x = 0; x < width; x += STRIP) {
    const count = Math.min(STRIP, width - x);
    const strip = squeezed(part(x, 0, count, height), count, 4, 4 * count, rows);
    output.set(strip, x * SIDE * 3);
  }
  return output;
}

/**
 * Bytes as the encoder takes them: (3, SIDE, SIDE).
 * @param {Uint8Array} bytes
 * @param {number} down bytes from one row to the next
 * @param {number} across bytes from one column to the next
 */
function channelsFirst(bytes, down, across) {
  const pixels = new Float32Array(3 * SIDE * SIDE);
  let to = 0;
  for (let channel = 0; channel < 3; channel++) {
    for (let y = 0; y < SIDE; y++) {
      for (let x = 0; x < SIDE; x++) pixels[to++] = bytes[y * down + x * across + channel];
    }
  }
  return pixels;
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
  const rounding = 1 << (BITS - 1); // one half
  const output = new Uint8Array(3 * count * filter.length);
  let to = 0;
  for (let row = 0; row < count; row++) {
    for (const { first, weights } of filter) {
      let from = row * line + first * step;
      let red = rounding;
      let green = rounding;
      let blue = rounding;
      for (const weight of weights) {
        red += weight * input[from];
        green += weight * input[from + 1];
        blue += weight * input[from + 2];
        from += step;
      }
      output[to] = Math.min(red >> BITS, 255);
      output[to + 1] = Math.min(green >> BITS, 255);
      output[to + 2] = Math.min(blue >> BITS, 255);
      to += 3;
    }
  }
  return output;
}
