// Everything that takes time happens here, so that the page answers at once: it loads models, opens
// pictures, and says words.

import * as ort from "./ort.wasm.bundle.min.mjs";
import { Captioner } from "./captioner.js";
import { square } from "./resize.js";

/**
 * @typedef {import("./captioner.js").Seen} Seen
 *
 * What a file should be, unpacked, where that is known.
 * @typedef {{bytes: number, sha256: string} | undefined} Expected
 *
 * Told how many bytes have come.
 * @typedef {(bytes: number) => void} Progress
 *
 * A request of the page, see requests.js.
 * @typedef {{id: number, do: string, [name: string]: any}} Ask
 *
 * What answers it; `tell` is for messages before the answer.
 * @typedef {(ask: Ask, tell: (message: object) => void) => Promise<object>} Action
 */

const FORMAT = "satlib onnx 1";
const WASM = "ort-wasm-simd-threaded.wasm.gz";
const MOST_PIXELS = 89_478_485; // Pillow's limit against decompression bombs, as in satlib
const SHOWN = 448; // pixels, the longer side of the picture on the page
/** @type {ImageBitmapOptions} colours as they are in the file, as Pillow reads them */
const UNCHANGED = { colorSpaceConversion: "none", premultiplyAlpha: "none" };

/** A mistake whose message the visitor reads as it is. */
class VisitorError extends Error {}

/** @type {Promise<void> | undefined} */
let runtime;
/** @type {Map<string, Promise<Captioner>>} */
const models = new Map();
/** @type {ImageBitmap | undefined} */
let picture;
/** @type {Map<string, Seen>} the open picture, by model */
const encoded = new Map();
/** @type {Promise<any>} one picture is opened after the other, so that the newest stays */
let opening = Promise.resolve();
let latest = 0; // the number of the newest caption that was asked for; older ones stop

// --- Files --------------------------------------------------------------------------------------

/**
 * A file of the page, unpacked and compared with its hash. A damaged copy that the browser has kept
 * is loaded anew.
 * @param {string} name
 * @param {Progress} progress
 * @param {Expected} expected
 * @param {RequestInit} options
 * @returns {Promise<Uint8Array>}
 */
async function fetched(name, progress, expected = undefined, options = {}) {
  const content =
    (await intact(name, progress, expected, options)) ??
    (await intact(name, progress, expected, { cache: "reload" }));
  if (content) return content;
  throw new VisitorError(
    `${name} is incomplete, or belongs to another version of this page. Load the page again; ` +
      "if that does not help, tell whoever put it there.",
  );
}

/**
 * A file's content, or null where it is not what it should be.
 * @param {string} name
 * @param {Progress} progress
 * @param {Expected} expected
 * @param {RequestInit} options
 */
async function intact(name, progress, expected, options) {
  const file = await downloaded(name, progress, options);
  const content = await unpacked(file).catch(() => null);
  if (content && (await matches(content, expected))) return new Uint8Array(content);
  progress(-file.size); // it has to come again
  return null;
}

/**
 * @param {string} name
 * @param {Progress} progress
 * @param {RequestInit} options
 */
async function downloaded(name, progress, options) {
  const response = await fetch(name, options).catch(() => undefined);
  if (!response) {
    throw new VisitorError(
      `${name} cannot be loaded: you are offline, or the server has stopped. ` +
        "Connect, then try again.",
    );
  }
  if (!response.ok || !response.body) {
    throw new VisitorError(
      `The server does not have ${name} (status ${response.status}). ` +
        "Tell whoever put this page there.",
    );
  }

  const parts = [];
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read().catch(() => {
      throw new VisitorError(`${name} broke off while it was loading. Try again.`);
    });
    if (done) return new Blob(parts);
    parts.push(value);
    progress(value.length);
  }
}

/** @param {Blob} file */
async function unpacked(file) {
  const start = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  const isPacked = start[0] === 0x1f && start[1] === 0x8b; // some servers unpack .gz themselves
  const stream = file.stream();
  const content = isPacked ? stream.pipeThrough(new DecompressionStream("gzip")) : stream;
  return new Response(content).arrayBuffer();
}

/**
 * Browsers hash only on secure pages (https, or this machine); elsewhere the length has to do.
 * @param {ArrayBuffer} content
 * @param {Expected} expected
 */
async function matches(content, expected) {
  if (!expected) return true;
  if (content.byteLength !== expected.bytes) return false;
  if (!globalThis.crypto?.subtle) return true;
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  const digits = [...digest].map((byte) => byte.toString(16).padStart(2, "0"));
  return expected.sha256 === digits.join("");
}

/** @param {Uint8Array} content */
const json = (content) => JSON.parse(new TextDecoder().decode(content));

// --- Models -------------------------------------------------------------------------------------

/** @param {Progress} progress */
function start(progress) {
  if (typeof WebAssembly === "undefined") {
    throw new VisitorError(
      "This browser has no WebAssembly, or it is switched off. " +
        "Switch it on, or use another browser.",
    );
  }
  runtime ??= (async () => {
    ort.env.wasm.numThreads = 1; // more need headers that a plain file server does not send
    ort.env.wasm.wasmBinary = (await fetched(WASM, progress)).buffer;
    ort.env.logLevel = "error";
  })();
  return runtime;
}

/**
 * A model, loaded once.
 * @param {string} name
 * @param {Progress} progress
 */
function load(name, progress) {
  let model = models.get(name);
  if (!model) {
    model = newlyLoaded(name, progress);
    models.set(name, model);
    model.catch(() => {
      models.delete(name); // the next try loads it again
      runtime = undefined;
    });
  }
  return model;
}

/**
 * @param {string} name
 * @param {Progress} progress
 */
async function newlyLoaded(name, progress) {
  const started = start(progress);
  // Hashes of another version would refuse the right files.
  const options = /** @type {RequestInit} */ ({ cache: "no-cache" });
  const manifest = json(await fetched(`${name}/manifest.json`, progress, undefined, options));

  const file = (/** @type {string} */ part, packed = "") =>
    fetched(`${name}/${part}${packed}`, progress, manifest.files[part]);
  const [vocabulary, encoder, step] = await Promise.all([
    file("vocabulary.json").then(json),
    file("encoder.onnx", ".gz"),
    file("step.onnx", ".gz"),
    started,
  ]);

  if (manifest.format !== FORMAT) {
    throw new VisitorError(
      `The model ${name} has the format "${manifest.format}"; this page reads "${FORMAT}". ` +
        "Write the page again with satlib page.",
    );
  }
  return Captioner.open(manifest, vocabulary, encoder, step);
}

// --- Pictures -----------------------------------------------------------------------------------

/**
 * Open a picture file: what the encoders will see, and a small copy for the page.
 * @param {Blob} file
 * @param {string} name
 */
async function open(file, name) {
  if (!file.size) throw new VisitorError(`${name} is empty. Choose another file.`);
  if (await isDamaged(file)) {
    throw new VisitorError(
      `${name} is damaged or incomplete. Copy it again, or choose another picture.`,
    );
  }
  const bitmap = await decoded(file, name);
  picture?.close();
  picture = bitmap;
  encoded.clear();

  const { width, height } = bitmap;
  const scale = SHOWN / Math.max(width, height);
  const canvas = new OffscreenCanvas(
    Math.max(1, Math.round(scale * width)),
    Math.max(1, Math.round(scale * height)),
  );
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
  paintWhite(context);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return { shown: canvas.transferToImageBitmap(), width, height };
}

/**
 * Whether a picture breaks off, where the browser can tell: it is drawn all the same, in grey.
 * @param {Blob} file
 */
async function isDamaged(file) {
  const Decoder = /** @type {any} */ (globalThis).ImageDecoder;
  const isKnown = Decoder && (await Decoder.isTypeSupported(file.type).catch(() => false));
  if (!isKnown) return false;

  const decoder = new Decoder({ type: file.type, data: await file.arrayBuffer() });
  try {
    await decoder.tracks.ready;
    const { image } = await decoder.decode();
    image.close();
    return false;
  } catch {
    return true;
  } finally {
    decoder.close();
  }
}

/**
 * @param {Blob} file
 * @param {string} name
 */
async function decoded(file, name) {
  const bitmap = await createImageBitmap(file, UNCHANGED).catch(() => {
    throw new VisitorError(
      `${name} is not a picture that this browser can read, or it is damaged. ` +
        "Save it as JPEG or PNG, then choose it again.",
    );
  });

  const pixels = bitmap.width * bitmap.height;
  if (pixels > MOST_PIXELS) {
    bitmap.close();
    throw new VisitorError(
      `${name} has ${Math.round(pixels / 1e6)} million pixels; at most 89 are possible. ` +
        "Make it smaller, then choose it again.",
    );
  }
  return bitmap;
}

/**
 * Transparent pictures lie on white, as in satlib.
 * @param {OffscreenCanvasRenderingContext2D} context
 */
function paintWhite(context) {
  context.imageSmoothingQuality = "high";
  context.fillStyle = "white";
  context.fillRect(0, 0, context.canvas.width, context.canvas.height);
}

/** The open picture as encoders see it. */
function pixels() {
  const bitmap = picture;
  if (!bitmap) throw new VisitorError("There is no picture yet. Choose one first.");

  /** @type {import("./resize.js").Part} */
  const part = (left, top, width, height) => {
    const canvas = new OffscreenCanvas(width, height);
    const context = /** @type {OffscreenCanvasRenderingContext2D} */ (
      canvas.getContext("2d", { willReadFrequently: true })
    );
    paintWhite(context);
    context.drawImage(bitmap, -left, -top);
    return context.getImageData(0, 0, width, height).data;
  };
  return square({ width: bitmap.width, height: bitmap.height, part });
}

// --- Requests -----------------------------------------------------------------------------------

/** @type {Record<string, Action>} */
const actions = {
  async load({ model }, tell) {
    const { manifest, vocabulary } = await load(model, (bytes) => tell({ bytes }));
    return { manifest, vocabulary };
  },

  async open({ file, name }) {
    const opened = opening.then(() => open(file, name));
    opening = opened.catch(() => {});
    return opened;
  },

  async pixels() {
    return { pixels: pixels() };
  },

  async say({ id, model, wish }, tell) {
    latest = id;
    const captioner = await load(model, (bytes) => tell({ bytes }));
    let seen = encoded.get(model);
    if (!seen) {
      const began = performance.now();
      const before = picture;
      seen = await captioner.encode(pixels());
      if (picture === before) encoded.set(model, seen); // another may have been opened
      tell({ encoded: performance.now() - began });
    }

    for await (const step of captioner.say(seen, wish)) {
      if (latest !== id) return { stopped: true };
      tell({ step });
      await new Promise((resolve) => setTimeout(resolve)); // a newer request may have come
    }
    return {};
  },
};

/**
 * What the visitor reads of a mistake.
 * @param {unknown} error
 */
function messageOf(error) {
  if (error instanceof VisitorError) return error.message;
  const text = String(error);
  if (/memory|allocat|RangeError/i.test(text)) {
    return (
      "There is too little memory for this. Close other pages, or choose a smaller picture, " +
      "then try again."
    );
  }
  return `Something went wrong that should not (${text}). Load the page again.`;
}

onmessage = async ({ data: ask }) => {
  const { id } = ask;
  const tell = (/** @type {object} */ message) => postMessage({ id, ...message });
  try {
    tell({ done: true, ...(await actions[ask.do](ask, tell)) });
  } catch (error) {
    tell({ failed: messageOf(error) });
  }
};
