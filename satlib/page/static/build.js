// Finishes a page whose files satlib has put beside this script: node build.js. Writes beside each
// picture what the first model of its kind says of it, and at each word what it says with all light
// on each place; then packs what is large, and tidies up.

import fs from "node:fs";
import { gzipSync } from "node:zlib";
import { Captioner } from "./captioner.js";
import * as ort from "./ort.wasm.bundle.min.mjs";

const WASM = "ort-wasm-simd-threaded.wasm";
const BUILT_FROM = [
  "build.js", "package.json", "package-lock.json", "tsconfig.json", "ort.wasm.bundle.min.d.mts",
];
/** The greedy caption, without light; and for each word what follows with light on each place. */
const WISH = { words: [], light: null, once: false, everywhere: true };

const here = (name) => new URL(name, import.meta.url);
const read = (name) => fs.readFileSync(here(name));
const json = (name) => JSON.parse(read(name));
const short = (_, value) => (typeof value === "number" ? Math.round(1e4 * value) / 1e4 : value);

function load(model) {
  const encoder = read(`${model}/encoder.onnx`);
  const step = read(`${model}/step.onnx`);
  const manifest = json(`${model}/manifest.json`);
  return Captioner.open(manifest, json(`${model}/vocabulary.json`), encoder, step);
}

/** Write what a model says of a picture in place of the pixels that it sees. */
async function store(captioner, picture) {
  const stem = picture.replace(/\.\w+$/, "");
  const seen = await captioner.encode(Float32Array.from(read(`${stem}.pixels`)));
  const steps = [];
  for await (const step of captioner.say(seen, WISH)) {
    steps.push({ ...step, alpha: [...step.alpha] });
  }
  fs.writeFileSync(here(`${stem}.json`), JSON.stringify(steps, short));
  fs.rmSync(here(`${stem}.pixels`));
}

/** Pack a file; its size. */
function pack(name) {
  const packed = gzipSync(read(name), { level: 9 });
  fs.writeFileSync(here(`${name}.gz`), packed);
  fs.rmSync(here(name));
  return packed.length;
}

ort.env.wasm.numThreads = 1;
ort.env.wasm.wasmBinary = read(WASM);
ort.env.logLevel = "error";
const contents = json("page.json");

for (const kind of ["scenes", "photographs"]) {
  const model = contents.models.find(({ data }) => (data === "scenes") === (kind === "scenes"));
  if (!model) continue;
  const captioner = await load(model.name);
  for (const picture of Object.keys(contents[kind])) await store(captioner, picture);
}

contents.runtime = pack(WASM);
for (const model of contents.models) {
  model.bytes = pack(`${model.name}/encoder.onnx`) + pack(`${model.name}/step.onnx`);
  for (const name of ["manifest", "vocabulary"]) {
    model.bytes += read(`${model.name}/${name}.json`).length;
  }
}
fs.writeFileSync(here("page.json"), JSON.stringify(contents));
for (const name of BUILT_FROM) fs.rmSync(here(name));

// A browser notices a new page by the version in its service worker.
const isShell = (name) => /\.(css|html|js|mjs)$/.test(name) && name !== "sw.js";
const shell = ["./", "page.json", ...fs.readdirSync(here(".")).filter(isShell)];
const serviceWorker = read("sw.js")
  .toString()
  .replace('VERSION = ""', `VERSION = "${Date.now()}"`)
  .replace("SHELL = []", `SHELL = ${JSON.stringify(shell)}`);
fs.writeFileSync(here("sw.js"), serviceWorker);
