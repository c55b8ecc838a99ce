// Finishes a page whose files satlib has put beside this script: node build.js. Writes beside each picture what the first model of its
// kind says of it, and at each word what it says with all light on each place; then packs what is large, and tidies up.

import fs from "node:fs";
import { gzipSync } from "node:zlib";
import { Captioner } from "./captioner.js";
import * as ort from "./ort.wasm.bundle.min.mjs";

const WASM = "ort-wasm-simd-threaded.wasm";
const BUILT_FROM = ["build.js", "package.json", "package-lock.json", "tsconfig.json", "ort.wasm.bundle.min.d.mts"];
const WISH = { words: [], method: "greedy", beam: 1, temperature: 1, onePlace: false, light: null, once: false, everywhere: true };

const here = (name) => new URL(name, import.meta.url);
const read = (name) => fs.readFileSync(here(name));
const json = (name) => JSON.parse(read(name));
const short = (_, value) => (typeof value === "number" ? Math.round(1e4 * value) / 1e4 : value);

ort.env.wasm.numThreads = 1;
ort.env.wasm.wasmBinary = read(WASM);
ort.env.logLevel = "error";
const contents = json("page.json");

for (const kind of ["scenes", "photographs"]) {
  const model = contents.models.find(({ data }) => (data === "scenes") === (kind === "scenes"))?.name;
  if (!model) continue;
  const graphs = ["encoder", "step"].map((name) => read(`${model}/${name}.onnx`));
  const captioner = await Captioner.open(json(`${model}/manifest.json`), json(`${model}/vocabulary.json`), ...graphs);
  for (const name of Object.keys(contents[kind])) {
    const stem = name.replace(/\.\w+$/, "");
    const seen = await captioner.encode(Float32Array.from(read(`${stem}.pixels`)));
    const steps = [];
    for await (const step of captioner.say(seen, WISH)) steps.push({ ...step, alpha: [...step.alpha] });
    fs.writeFileSync(here(`${stem}.json`), JSON.stringify(steps, short));
    fs.rmSync(here(`${stem}.pixels`));
  }
}

/** Pack a file; its size. */
function pack(name) {
  fs.writeFileSync(here(`${name}.gz`), gzipSync(read(name), { level: 9 }));
  fs.rmSync(here(name));
  return fs.statSync(here(`${name}.gz`)).size;
}

contents.runtime = pack(WASM);
for (const model of contents.models) {
  model.bytes = pack(`${model.name}/encoder.onnx`) + pack(`${model.name}/step.onnx`);
  for (const name of ["manifest", "vocabulary"]) model.bytes += read(`${model.name}/${name}.json`).length;
}
fs.writeFileSync(here("page.json"), JSON.stringify(contents));
const worker = read("sw.js").toString(); // a browser notices a new page by the worker's version
fs.writeFileSync(here("sw.js"), worker.replace('VERSION = ""', `VERSION = "${Date.now()}"`));
for (const name of BUILT_FROM) fs.rmSync(here(name));
