// Everything that takes time happens here, so that the page answers at once: it loads models, opens pictures, and says words.

import * as ort from "./ort.wasm.bundle.min.mjs";
import { Captioner } from "./captioner.js";
import { square } from "./resize.js";

const FORMAT = "satlib onnx 1";
const MOST_PIXELS = 89_478_485; // Pillow's limit against decompression bombs, which satlib keeps too
const SHOWN = 448; // pixels, the longer side of the picture on the page

/** A mistake that is told to the visitor as it is. */
class Told extends Error {}

/** @typedef {import("./captioner.js").Seen} Seen */

/** @type {Promise<void> | undefined} */
let runtime;
/** @type {Map<string, Promise<Captioner>>} */
const models = new Map();
/** @type {ImageBitmap | undefined} */
let picture;
/** @type {Map<string, Seen>} */
const encoded = new Map();
/** @type {Promise<any>} */
let opening = Promise.resolve(); // one picture after the other, so that the newest stays
let latest = 0; // the number of the newest caption that was asked for; older ones stop

/** @typedef {{bytes: number, sha256: string} | undefined} Right what a file should be, unpacked, where that is known */

/**
 * A file of the page, unpacked and compared with its hash. A damaged copy that the browser has kept is loaded anew.
 * @param {string} name
 * @param {(bytes: number) => void} progress
 * @param {Right} right
 * @param {RequestInit} how
 * @returns {Promise<Uint8Array>}
 */
async function fetched(name, progress, right = undefined, how = {}) {
  const content = (await intact(name, progress, right, how)) ?? (await intact(name, progress, right, { cache: "reload" }));
  if (content) return content;
  throw new Told(`${name} is incomplete, or belongs to another version of this page. Load the page again; if that does not help, tell whoever put it there.`);
}

/**
 * A file's content, or null where it is not right.
 * @param {string} name
 * @param {(bytes: number) => void} progress
 * @param {Right} right
 * @param {RequestInit} how
 */
async function intact(name, progress, right, how) {
  const response = await fetch(name, how).catch(() => undefined);
  if (!response) throw new Told(`${name} cannot be loaded: you are offline, or the server has stopped. Connect, then try again.`);
  if (!response.ok || !response.body) throw new Told(`The server does not have ${name} (status ${response.status}). Tell whoever put this page there.`);
  const parts = [];
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read().catch(() => {
      throw new Told(`${name} broke off while it was loading. Try again.`);
    });
    if (done) break;
    parts.push(value);
    progress(value.length);
  }
  const whole = new Blob(parts);
  const start = new Uint8Array(await whole.slice(0, 2).arrayBuffer());
  const packed = start[0] === 0x1f && start[1] === 0x8b; // some servers unpack .gz themselves
  const stream = packed ? whole.stream().pipeThrough(new DecompressionStream("gzip")) : whole.stream();
  const content = await new Response(stream).arrayBuffer().catch(() => null);
  if (content && (!right || (content.byteLength === right.bytes && (await matches(content, right.sha256))))) return new Uint8Array(content);
  progress(-whole.size);
  return null;
}

/**
 * Browsers hash only on secure pages (https, or this machine); elsewhere the length has to do.
 * @param {ArrayBuffer} content
 * @param {string} sha256
 */
async function matches(content, sha256) {
  if (!globalThis.crypto?.subtle) return true;
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  return sha256 === [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** @param {Uint8Array} content */
const json = (content) => JSON.parse(new TextDecoder().decode(content));

/** @param {(bytes: number) => void} progress */
function start(progress) {
  if (typeof WebAssembly === "undefined") {
    throw new Told("This browser has no WebAssembly, or it is switched off. Switch it on, or use another browser.");
  }
  runtime ??= (async () => {
    ort.env.wasm.numThreads = 1; // more need headers that a plain file server does not send
    ort.env.wasm.wasmBinary = (await fetched("ort-wasm-simd-threaded.wasm.gz", progress)).buffer;
    ort.env.logLevel = "error";
  })();
  return runtime;
}

/**
 * A model, loaded once.
 * @param {string} name
 * @param {(bytes: number) => void} progress
 */
function load(name, progress) {
  let model = models.get(name);
  if (!model) {
    model = (async () => {
      const begun = start(progress);
      const manifest = json(await fetched(`${name}/manifest.json`, progress, undefined, { cache: "no-cache" }));
      const file = (/** @type {string} */ part, packed = "") => fetched(`${name}/${part}${packed}`, progress, manifest.files[part]);
      const [vocabulary, encoder, step] = await Promise.all([
        file("vocabulary.json").then(json),
        file("encoder.onnx", ".gz"),
        file("step.onnx", ".gz"),
        begun,
      ]);
      if (manifest.format !== FORMAT) {
        throw new Told(`The model ${name} has the format "${manifest.format}"; this page reads "${FORMAT}". Write the page again with satlib page.`);
      }
      return Captioner.open(manifest, vocabulary, encoder, step);
    })();
    models.set(name, model);
    model.catch(() => {
      models.delete(name); // the next try loads it again
      runtime = undefined;
    });
  }
  return model;
}

/**
 * Open a picture file: what the encoders will see, and a small copy for the page.
 * @param {Blob} file
 * @param {string} name
 */
async function open(file, name) {
  if (!file.size) throw new Told(`${name} is empty. Choose another file.`);
  const { animated, damaged } = await inspected(file);
  if (damaged) throw new Told(`${name} is damaged or incomplete. Copy it again, or choose another picture.`);
  const bitmap = await createImageBitmap(file, { colorSpaceConversion: "none", premultiplyAlpha: "none" }).catch(() => {
    throw new Told(`${name} is not a picture that this browser can read, or it is damaged. Save it as JPEG or PNG, then choose it again.`);
  });
  const { width, height } = bitmap;
  if (width * height > MOST_PIXELS) {
    bitmap.close();
    throw new Told(`${name} has ${Math.round((width * height) / 1e6)} million pixels; at most 89 are possible. Make it smaller, then choose it again.`);
  }
  picture?.close();
  picture = bitmap;
  encoded.clear();
  const scale = SHOWN / Math.max(width, height);
  const canvas = new OffscreenCanvas(Math.max(1, Math.round(scale * width)), Math.max(1, Math.round(scale * height)));
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
  onWhite(context, () => context.drawImage(bitmap, 0, 0, canvas.width, canvas.height));
  return { shown: canvas.transferToImageBitmap(), width, height, animated };
}

/**
 * What the browser can tell of a file before it is drawn. A picture that breaks off is drawn all the same, in grey.
 * @param {Blob} file
 */
async function inspected(file) {
  const Decoder = /** @type {any} */ (globalThis).ImageDecoder;
  if (!Decoder || !(await Decoder.isTypeSupported(file.type).catch(() => false))) return { animated: false, damaged: false };
  const decoder = new Decoder({ type: file.type, data: await file.arrayBuffer() });
  try {
    await decoder.tracks.ready;
    const { image } = await decoder.decode();
    image.close();
    return { animated: decoder.tracks.selectedTrack.frameCount > 1, damaged: false };
  } catch {
    return { animated: false, damaged: true };
  } finally {
    decoder.close();
  }
}

/**
 * Transparent pictures lie on white, as in satlib.
 * @param {OffscreenCanvasRenderingContext2D} context
 * @param {() => void} draw
 */
function onWhite(context, draw) {
  context.imageSmoothingQuality = "high";
  context.fillStyle = "white";
  context.fillRect(0, 0, context.canvas.width, context.canvas.height);
  draw();
}

/**
 * The square that an encoder sees of the open picture.
 * @param {string} view
 */
function pixels(view) {
  const bitmap = picture;
  if (!bitmap) throw new Told("There is no picture yet. Choose one first.");
  const { width, height } = bitmap;
  /** @type {import("./resize.js").Part} */
  const part = (left, top, wide, high) => {
    const canvas = new OffscreenCanvas(wide, high);
    const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d", { willReadFrequently: true }));
    onWhite(context, () => context.drawImage(bitmap, -left, -top));
    return context.getImageData(0, 0, wide, high).data;
  };
  return square({ width, height, part }, view);
}

/** @typedef {{id: number, do: string, [name: string]: any}} Order */

/** @type {Record<string, (order: Order, tell: (message: object, moved?: Transferable[]) => void) => Promise<object>>} */
const deeds = {
  async load({ model }, tell) {
    const { manifest, vocabulary } = await load(model, (bytes) => tell({ bytes }));
    return { manifest, vocabulary };
  },

  async open({ file, name }) {
    const opened = opening.then(() => open(file, name));
    opening = opened.catch(() => {});
    return opened;
  },

  async pixels({ view }) {
    return { pixels: pixels(view) };
  },

  async say({ id, model, wish }, tell) {
    latest = id;
    const captioner = await load(model, (bytes) => tell({ bytes }));
    const { view } = captioner.manifest.image;
    let seen = encoded.get(model);
    if (!seen) {
      const began = performance.now();
      const of = picture;
      seen = await captioner.encode(pixels(view));
      if (of === picture) encoded.set(model, seen); // another may have been opened
      tell({ encoded: performance.now() - began });
    }
    for await (const step of captioner.say(seen, wish)) {
      if (latest !== id) return { stopped: true };
      tell({ step });
      await new Promise((resolve) => setTimeout(resolve)); // a newer order may have come
    }
    return {};
  },
};

/**
 * What a visitor is told of a mistake.
 * @param {unknown} error
 */
function told(error) {
  if (error instanceof Told) return error.message;
  const text = String(error);
  if (/memory|allocat|RangeError/i.test(text)) {
    return "There is too little memory for this. Close other pages, or choose a smaller picture, then try again.";
  }
  return `Something went wrong that should not (${text}). Load the page again.`;
}

onmessage = async ({ data: order }) => {
  const { id } = order;
  const tell = (/** @type {object} */ message) => postMessage({ id, ...message });
  try {
    tell({ done: true, ...(await deeds[order.do](order, tell)) });
  } catch (error) {
    tell({ failed: told(error) });
  }
};
