// An exported captioner (satlib export --onnx), run by onnxruntime: encode a picture once, then say
// one word after another.

import * as ort from "./ort.wasm.bundle.min.mjs";

const BARRED = -Infinity; // log p of a word that must not be said
const NOTHING = -1; // in place of a word, at the start
const BEST = 3; // likeliest words are told

/**
 * @typedef {object} Manifest what satlib/page/export.py writes
 * @property {string} format
 * @property {Record<string, {bytes: number, sha256: string}>} files
 * @property {{side: number}} image
 * @property {[number, number]} grid rows and columns of a map
 * @property {{end: number, unknown: number}} words
 * @property {{max_length: number}} decoding
 * @property {number[] | null} [repeatable] words that a caption may have twice; without it, all
 *
 * @typedef {{h: Float32Array, c: Float32Array}} LSTMState (B, n) each
 *
 * @typedef {object} Seen one encoded picture
 * @property {ort.Tensor} a (1, L, D)
 * @property {ort.Tensor} keys (1, L, W) what the attention computes from a alone
 * @property {Float32Array} h (n,) the first state
 * @property {Float32Array} c (n,)
 *
 * @typedef {object} Step what the model said and where it looked for it
 * @property {number} word its id
 * @property {number} p its probability
 * @property {{word: number, p: number}[]} best the likeliest words
 * @property {Float32Array} alpha the map (L,)
 * @property {number} beta the gate
 * @property {{word: number, alpha: Float32Array} | null} own where it had to look: the likeliest
 *   word with its own map, after the same words
 * @property {number[][]} [places] the likeliest words with all light on each place alone (L, BEST)
 * @property {number[][]} [percent] their probabilities
 *
 * @typedef {object} Wish
 * @property {number[]} words the first words, which are given; the model goes on from there
 * @property {Float32Array | null} light (L,) where the model has to look, from the first word
 *   on that is not given
 * @property {boolean} once at that word only
 * @property {boolean} [everywhere] whether each step has `places`
 */

/**
 * The index of the largest value.
 * @param {Float32Array} values
 */
function largest(values) {
  let best = 0;
  for (let index = 1; index < values.length; index++) {
    if (values[index] > values[best]) best = index;
  }
  return best;
}

/**
 * The indices of the largest values, largest first.
 * @param {Float32Array | Float64Array} values
 * @param {number} count
 */
function top(values, count) {
  /** @type {number[]} */
  const best = [];
  for (let index = 0; index < values.length; index++) {
    if (best.length === count && values[index] <= values[best[count - 1]]) continue;
    const place = best.findIndex((other) => values[index] > values[other]);
    best.splice(place < 0 ? best.length : place, 0, index);
    best.length = Math.min(best.length, count);
  }
  return best;
}

/** @param {ort.Tensor} tensor of float32 */
const numbers = (tensor) => /** @type {Float32Array} */ (tensor.data);

export class Captioner {
  /**
   * @param {Manifest} manifest
   * @param {string[]} vocabulary
   * @param {Uint8Array} encoder the content of encoder.onnx
   * @param {Uint8Array} step the content of step.onnx
   */
  static async open(manifest, vocabulary, encoder, step) {
    const encoding = await ort.InferenceSession.create(encoder);
    const decoding = await ort.InferenceSession.create(step);
    return new Captioner(manifest, vocabulary, encoding, decoding);
  }

  /**
   * @param {Manifest} manifest
   * @param {string[]} vocabulary
   * @param {ort.InferenceSession} encoder
   * @param {ort.InferenceSession} decoder
   */
  constructor(manifest, vocabulary, encoder, decoder) {
    this.manifest = manifest;
    this.vocabulary = vocabulary;
    this.encoder = encoder;
    this.decoder = decoder;
  }

  /**
   * @param {Float32Array} pixels (3, side, side), 0 to 255
   * @returns {Promise<Seen>}
   */
  async encode(pixels) {
    const { side } = this.manifest.image;
    const input = new ort.Tensor("float32", pixels, [1, 3, side, side]);
    const out = await this.encoder.run({ pixels: input });
    return { a: out.a, keys: out.keys, h: numbers(out.h), c: numbers(out.c) };
  }

  /**
   * One word of each of several sentences of a picture. log_p is -Infinity for words that must not
   * be said: of those that are not repeatable, none twice.
   * @param {Seen} seen
   * @param {LSTMState} state
   * @param {number[][]} said the ids of the words so far of each sentence, -1 at the start
   * @param {Float32Array | null} light (L,), for all sentences; or (B, L)
   * @param {boolean} mustEnd
   */
  async step(seen, state, said, light, mustEnd) {
    const B = said.length;
    const L = seen.a.dims[1];
    const matrix = (/** @type {Float32Array} */ values) =>
      new ort.Tensor("float32", values, [B, values.length / B]);

    const lights = new Float32Array(B * L); // zeros: the model looks by itself
    if (light) {
      for (let at = 0; at < lights.length; at += light.length) lights.set(light, at);
    }
    const words = BigInt64Array.from(said, (ids) => BigInt(ids[ids.length - 1]));
    const out = await this.decoder.run({
      a: seen.a,
      keys: seen.keys,
      h: matrix(state.h),
      c: matrix(state.c),
      words: new ort.Tensor("int64", words, [B]),
      light: matrix(lights),
    });

    const log_p = numbers(out.log_p); // (B, K)
    const K = log_p.length / B;
    said.forEach((ids, row) => this.barWords(log_p.subarray(row * K, (row + 1) * K), ids, mustEnd));
    return {
      log_p,
      alpha: numbers(out.alpha),
      beta: numbers(out.beta),
      state: { h: numbers(out.h_next), c: numbers(out.c_next) },
    };
  }

  /**
   * Bar the words that must not follow.
   * @param {Float32Array} log_p (K,), which is changed
   * @param {number[]} said the ids of the words so far, -1 at the start
   * @param {boolean} mustEnd
   */
  barWords(log_p, said, mustEnd) {
    const { repeatable } = this.manifest;
    const { end, unknown } = this.manifest.words;
    const log_p_end = log_p[end];
    if (mustEnd) log_p.fill(BARRED);
    log_p[end] = log_p_end;
    log_p[unknown] = BARRED;
    if (!repeatable) return;
    for (const word of said.slice(1)) {
      if (!repeatable.includes(word)) log_p[word] = BARRED;
    }
  }

  /**
   * Say a caption, word by word; the end mark is the last.
   * @param {Seen} seen
   * @param {Wish} wish
   * @returns {AsyncGenerator<Step>}
   */
  async *say(seen, wish) {
    const { end } = this.manifest.words;
    const { max_length } = this.manifest.decoding;
    /** @type {LSTMState} */
    let state = { h: seen.h, c: seen.c };
    const said = [NOTHING];
    for (let t = 0; said[t] !== end; t++) {
      const mustEnd = t >= max_length;
      const light = this.lightAt(wish, t);
      const everywhere = wish.everywhere ? await this.everywhere(seen, state, said, mustEnd) : {};
      const out = await this.step(seen, state, [said], light, mustEnd);
      const own = light && (await this.step(seen, state, [said], null, mustEnd));
      state = out.state;

      const word = wish.words[t] ?? largest(out.log_p);
      said.push(word);
      const p = out.log_p.map(Math.exp);
      yield {
        word,
        p: p[word],
        best: top(p, BEST).map((id) => ({ word: id, p: p[id] })),
        alpha: out.alpha,
        beta: out.beta[0],
        own: own && { word: largest(own.log_p), alpha: own.alpha },
        ...everywhere,
      };
    }
  }

  /**
   * The likeliest next words with all light on each place alone (L, BEST), and their
   * probabilities in percent.
   * @param {Seen} seen
   * @param {LSTMState} state of one sentence
   * @param {number[]} said
   * @param {boolean} mustEnd
   */
  async everywhere(seen, { h, c }, said, mustEnd) {
    // One batch, with a row for each place.
    const L = seen.a.dims[1];
    const state = { h: repeated(h, L), c: repeated(c, L) };
    const lights = new Float32Array(L * L);
    for (let place = 0; place < L; place++) lights[place * L + place] = 1;
    const { log_p } = await this.step(seen, state, Array(L).fill(said), lights, mustEnd);

    const K = log_p.length / L;
    const places = [];
    const percent = [];
    for (let place = 0; place < L; place++) {
      const row = log_p.subarray(place * K, (place + 1) * K);
      const words = top(row, BEST);
      places.push(words);
      percent.push(words.map((word) => Math.round(100 * Math.exp(row[word]))));
    }
    return { places, percent };
  }

  /**
   * @param {Wish} wish
   * @param {number} t
   */
  lightAt(wish, t) {
    const from = wish.words.length;
    const isLit = wish.once ? t === from : t >= from;
    return isLit ? wish.light : null;
  }
}

/**
 * A vector as each row of a matrix (count, n).
 * @param {Float32Array} vector (n,)
 * @param {number} count
 */
function repeated(vector, count) {
  const matrix = new Float32Array(count * vector.length);
  for (let row = 0; row < count; row++) matrix.set(vector, row * vector.length);
  return matrix;
}
