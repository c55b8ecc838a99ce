// An exported captioner (satlib export --onnx), run by onnxruntime: encode a picture once, then say one word after another.

import * as ort from "./ort.wasm.bundle.min.mjs";

const BARRED = -Infinity;

/**
 * What satlib/page/export.py writes; grid: rows and columns of a map.
 * @typedef {{
 *   format: string,
 *   files: Record<string, {bytes: number, sha256: string}>,
 *   image: {side: number, view: string},
 *   grid: [number, number],
 *   words: {end: number, unknown: number},
 *   decoding: {beam: number, length_normalisation: number, max_length: number},
 *   repeatable?: number[] | null,
 * }} Manifest
 *
 * @typedef {{a: ort.Tensor, keys: ort.Tensor, h: Float32Array, c: Float32Array}} Seen one encoded picture
 *
 * @typedef {object} Step what the model said and where it looked for it
 * @property {number} word its id
 * @property {number} p its probability
 * @property {{word: number, p: number}[]} best the five likeliest words
 * @property {Float32Array} alpha the map (L,)
 * @property {number} beta the gate
 * @property {number[]} [places] the word for all light on each place alone (L,)
 * @property {number[]} [percent] its probability
 *
 * @typedef {object} Wish
 * @property {number[]} words the words that are given; the model goes on from there
 * @property {"greedy" | "beam" | "sample"} method
 * @property {number} beam hypotheses
 * @property {number} temperature of sampling
 * @property {boolean} onePlace draw one place from the map for each word, as hard attention is trained; otherwise z_t is the mean
 * @property {Float32Array | null} light where the model is to look (L,), from the first word that is not given
 * @property {boolean} once at that word only
 * @property {boolean} [everywhere] whether each step has `places`
 */

/** @param {Float32Array} values */
const largest = (values) => values.reduce((best, value, index) => (value > values[best] ? index : best), 0);

/**
 * A draw from numbers that are proportional to probabilities.
 * @param {Float32Array} values
 * @param {() => number} random
 */
function drawn(values, random) {
  let left = random() * values.reduce((sum, value) => sum + value, 0);
  const index = values.findIndex((value) => (left -= value) < 0);
  return index < 0 ? largest(values) : index; // rounding may leave nothing
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

export class Captioner {
  /**
   * @param {Manifest} manifest
   * @param {string[]} vocabulary
   * @param {Uint8Array} encoder the content of encoder.onnx
   * @param {Uint8Array} step the content of step.onnx
   */
  static async open(manifest, vocabulary, encoder, step) {
    const sessions = [await ort.InferenceSession.create(encoder), await ort.InferenceSession.create(step)];
    return new Captioner(manifest, vocabulary, sessions[0], sessions[1]);
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
    this.random = Math.random;
  }

  /**
   * @param {Float32Array} pixels (3, side, side), 0 to 255
   * @returns {Promise<Seen>}
   */
  async encode(pixels) {
    const { side } = this.manifest.image;
    const out = await this.encoder.run({ pixels: new ort.Tensor("float32", pixels, [1, 3, side, side]) });
    const numbers = (/** @type {string} */ name) => /** @type {Float32Array} */ (out[name].data);
    return { a: out.a, keys: out.keys, h: numbers("h"), c: numbers("c") };
  }

  /**
   * One word of several hypotheses. log_p is -Infinity for words that must not be said: of those that are not repeatable, none twice.
   * @param {Seen} seen
   * @param {{h: Float32Array, c: Float32Array}} state (B, n) each
   * @param {number[][]} said the ids of the words so far of each hypothesis, -1 at the start
   * @param {Float32Array | null} light (L,), for all hypotheses; or (B, L)
   * @param {boolean} mustEnd
   */
  async step(seen, state, said, light, mustEnd) {
    const [rows, L] = [said.length, seen.a.dims[1]];
    const lit = new Float32Array(rows * L);
    if (light) for (let at = 0; at < lit.length; at += light.length) lit.set(light, at);
    const float = (/** @type {Float32Array} */ values) =>
      new ort.Tensor("float32", values, [rows, values.length / rows]);
    const out = await this.decoder.run({
      a: seen.a,
      keys: seen.keys,
      h: float(state.h),
      c: float(state.c),
      words: new ort.Tensor("int64", BigInt64Array.from(said, (words) => BigInt(words[words.length - 1])), [rows]),
      light: float(lit),
    });
    const numbers = (/** @type {string} */ name) => /** @type {Float32Array} */ (out[name].data);
    const log_p = numbers("log_p");
    const { repeatable, words: { end, unknown } } = this.manifest;
    const K = log_p.length / rows;
    for (let row = 0; row < rows; row++) {
      const kept = log_p[row * K + end];
      if (mustEnd) log_p.fill(BARRED, row * K, (row + 1) * K);
      log_p[row * K + end] = kept;
      log_p[row * K + unknown] = BARRED;
      for (const word of said[row].slice(1)) if (repeatable && !repeatable.includes(word)) log_p[row * K + word] = BARRED;
    }
    return {
      log_p,
      alpha: numbers("alpha"),
      beta: numbers("beta"),
      state: { h: numbers("h_next"), c: numbers("c_next") },
    };
  }

  /**
   * Say a caption, word by word; the end mark is the last.
   * @param {Seen} seen
   * @param {Wish} wish
   * @returns {AsyncGenerator<Step>}
   */
  async *say(seen, wish) {
    const { end } = this.manifest.words;
    let given = wish.words;
    if (wish.method === "beam") given = [...given, ...(await this.search(seen, wish)), end];
    let state = { h: seen.h, c: seen.c };
    const said = [-1];
    for (let t = 0; said[t] !== end; t++) {
      const ends = t >= this.manifest.decoding.max_length;
      const light = this.lightAt(wish, t);
      const everywhere = wish.everywhere ? await this.everywhere(seen, state, said, ends) : {};
      let out = await this.step(seen, state, [said], light, ends);
      if (wish.onePlace && !light) {
        const place = new Float32Array(out.alpha.length);
        place[drawn(out.alpha, this.random)] = 1;
        out = await this.step(seen, state, [said], place, ends);
      }
      state = out.state;
      const p = out.log_p.map(Math.exp);
      let next = given[t];
      if (t >= given.length) {
        next = largest(out.log_p);
        const most = out.log_p[next]; // taken away first: at a low temperature all would be 0
        const weights = out.log_p.map((x) => Math.exp((x - most) / wish.temperature));
        if (wish.method === "sample") next = drawn(weights, this.random);
      }
      const best = top(p, 5).map((word) => ({ word, p: p[word] }));
      said.push(next);
      yield { word: next, p: p[next], best, alpha: out.alpha, beta: out.beta[0], ...everywhere };
    }
  }

  /**
   * The likeliest next word with all light on each place alone (L,), and its probability in percent.
   * @param {Seen} seen
   * @param {{h: Float32Array, c: Float32Array}} state
   * @param {number[]} said
   * @param {boolean} mustEnd
   */
  async everywhere(seen, { h, c }, said, mustEnd) {
    const L = seen.a.dims[1];
    const repeated = (/** @type {Float32Array} */ values) => Float32Array.from({ length: L * values.length }, (_, at) => values[at % values.length]);
    const one = Float32Array.from({ length: L * L }, (_, at) => Number(at % (L + 1) === 0));
    const { log_p } = await this.step(seen, { h: repeated(h), c: repeated(c) }, Array(L).fill(said), one, mustEnd);
    const K = log_p.length / L;
    const rows = Array.from({ length: L }, (_, row) => log_p.subarray(row * K, (row + 1) * K));
    const places = rows.map(largest);
    return { places, percent: rows.map((row, at) => Math.round(100 * Math.exp(row[places[at]]))) };
  }

  /**
   * @param {Wish} wish
   * @param {number} t
   */
  lightAt(wish, t) {
    const from = wish.words.length;
    return wish.light && t >= from && (t === from || !wish.once) ? wish.light : null;
  }

  /**
   * Beam search, as satlib.model.search.beam_search does it, from the words that are given: the words that follow these, without the
   * end mark, of the best finished hypothesis.
   * @param {Seen} seen
   * @param {Wish} wish
   * @returns {Promise<number[]>}
   */
  async search(seen, wish) {
    const { end } = this.manifest.words;
    const { length_normalisation: x, max_length } = this.manifest.decoding;
    /** @type {{words: number[], total: number}[]} */
    let living = [{ words: [-1], total: 0 }];
    let state = { h: seen.h, c: seen.c };
    for (const word of wish.words) {
      state = (await this.step(seen, state, [living[0].words], null, false)).state;
      living = [{ words: [...living[0].words, word], total: 0 }];
    }
    /** @type {{words: number[], score: number}[]} */
    let finished = [];
    for (let t = wish.words.length; t <= max_length && living.length; t++) {
      const said = living.map(({ words }) => words);
      const out = await this.step(seen, state, said, this.lightAt(wish, t), t === max_length);
      const K = out.log_p.length / living.length;
      const totals = Float64Array.from(out.log_p, (value, index) => living[Math.floor(index / K)].total + value);
      const candidates = top(totals, 2 * wish.beam)
        .filter((index) => totals[index] > BARRED)
        .map((index) => ({ row: Math.floor(index / K), word: index % K, total: totals[index] }));
      for (const { row, word, total } of candidates.slice(0, wish.beam)) {
        if (word === end) finished.push({ words: living[row].words, score: total / (t + 1) ** x });
      }
      finished = finished.sort((one, other) => other.score - one.score).slice(0, wish.beam);
      const kept = candidates.filter(({ word }) => word !== end).slice(0, wish.beam);
      const reachable = kept.length ? kept[0].total / (max_length + 1) ** x : BARRED;
      if (finished.length === wish.beam && finished[wish.beam - 1].score >= reachable) break;
      const n = out.state.h.length / living.length;
      const rows = (/** @type {Float32Array} */ values) => {
        const chosen = new Float32Array(kept.length * n);
        kept.forEach(({ row }, to) => chosen.set(values.subarray(row * n, (row + 1) * n), to * n));
        return chosen;
      };
      state = { h: rows(out.state.h), c: rows(out.state.c) };
      living = kept.map(({ row, word, total }) => ({ words: [...living[row].words, word], total }));
    }
    return finished[0].words.slice(1 + wish.words.length);
  }
}
