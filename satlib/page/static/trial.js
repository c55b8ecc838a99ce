// "Attention on trial": bet, move the light, see both sentences, press Control, read the verdict.
// exhibits.json has the questions. trial.json has the numbers, which benchmarks/trial.py computes;
// those of the visitor's own photograph are computed here.

import { lit, sharpest, upsample } from "./light.js";
import { request, startWorker } from "./requests.js";

/**
 * @typedef {object} Data what is known of an exhibit's picture
 * @property {[number, number]} grid rows and columns of a map
 * @property {string[]} words the model's own sentence
 * @property {number} at the number of the word on trial
 * @property {string} word on trial
 * @property {string} [even] the word in even light
 * @property {number[]} alpha its map (L,)
 * @property {string[]} sentences what is said with all light on one place alone,
 * @property {number[]} places and which of them at each place (L,)
 * @property {{map: number[], sentence: string}} control
 * @property {number} of how many cases the numbers are
 * @property {number} count of those in which the light did it
 * @property {number} most of those in which the best control did it
 * @property {number} [margin] standard errors by which the light did more than each control
 *
 * @typedef {Record<string, string>} Exhibit of exhibits.json
 * @typedef {(selector: string, within?: ParentNode) => any} Find
 */

/** @type {Find} */
const find = (selector, within = document) => within.querySelector(selector);

/** @type {Record<string, (data: any) => boolean>} what makes an exhibit evidence */
const RULES = {
  "the light does more than each control, by two standard errors": ({ margin }) => margin > 2,
  "most labels are left": ({ count, of }) => 2 * count > of,
  "more than one noun in ten falls": ({ count, of }) => count < 0.9 * of,
  "most places and even light change it": ({ count, most, of }) => 2 * count < of && most === 0,
};

/**
 * Open the case of an exhibit, and hear it until the verdict.
 * @param {Exhibit} exhibit
 * @param {Find} part of its section
 * @param {Data} data
 * @param {ImageBitmap} bitmap
 */
function hear(exhibit, part, data, bitmap) {
  const { alpha, at, control, grid: [rows, columns], places, sentences, words } = data;
  const text = (/** @type {string} */ name) =>
    exhibit[name].replace(/{(\w+)}/g, (_, key) => /** @type {any} */ (data)[key]);
  for (const name of ["question", "move", "control"]) part(`.${name}`).textContent = text(name);

  const canvas = part("canvas");
  Object.assign(canvas, { width: bitmap.width, height: bitmap.height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  const picture = context.getImageData(0, 0, canvas.width, canvas.height);

  /**
   * Light the picture, and write what is said in that light, with the word on trial in capitals.
   * @type {(line: string, light: string, map: number[], said: string[]) => void}
   */
  const draw = (line, light, map, said) => {
    const pixels = upsample(Float32Array.from(map), data.grid, canvas.width, canvas.height);
    context.putImageData(lit(picture, pixels), 0, 0);
    const marked = said.map((word, index) => (index === at ? word.toUpperCase() : word));
    part(line).textContent = `${light}: ${marked.join(" ")}`;
  };

  const form = part("form");
  form.low.max = form.high.max = data.of;
  form.low.oninput = () => (form.high.min = form.low.value);
  let place = alpha.indexOf(Math.max(...alpha));
  const move = (/** @type {number} */ next) => {
    if (!form.inert || !(next in places)) return; // the bet comes first
    place = next;
    const map = places.map((_, index) => Number(index === place));
    draw(".lit", "In your light", map, sentences[places[place]].split(" "));
    part(".control").disabled = false;
  };

  part(".picture").hidden = false;
  draw(".own", "By itself", alpha, words);
  form.hidden = false;
  const seal = () => {
    form.inert = true;
    part("form button").textContent = "Sealed";
    part("input").hidden = true; // the bet is on this photograph
    part(".see").hidden = false;
  };
  form.onsubmit = (/** @type {Event} */ event) => {
    event.preventDefault();
    seal();
    keep(exhibit.id, { low: form.low.value, high: form.high.value });
    canvas.focus({ preventScroll: true });
    part(".see").scrollIntoView({ block: "nearest" }); // on a phone it is below the picture
  };
  canvas.onpointerdown = canvas.onpointermove = (/** @type {PointerEvent} */ event) => {
    const column = Math.floor((event.offsetX / canvas.clientWidth) * columns);
    const row = Math.floor((event.offsetY / canvas.clientHeight) * rows);
    if (column >= 0 && column < columns) move(row * columns + column);
  };
  const arrows = { ArrowUp: -columns, ArrowDown: columns, ArrowLeft: -1, ArrowRight: 1 };
  canvas.onkeydown = (/** @type {KeyboardEvent} */ event) => {
    if (!(event.key in arrows)) return;
    event.preventDefault(); // the page would scroll
    move(place + arrows[/** @type {keyof typeof arrows} */ (event.key)]);
  };
  const judge = () => {
    draw(".lit", text("light"), control.map, control.sentence.split(" "));
    if (part("strong").textContent) return; // it stands
    const verdict = RULES[exhibit.rule](data) ? "Evidence" : "Decoration";
    part("strong").textContent = verdict;
    part(".verdict").append(text("verdict"));
    const truth = /** @type {any} */ (data)[exhibit.number];
    enter(`${exhibit.title}: ${verdict.toLowerCase()}`, form, truth, exhibit.unit);
  };
  part(".control").onclick = () => {
    judge();
    keep(exhibit.id, { judged: true });
    part(".verdict").scrollIntoView({ block: "nearest" });
  };

  // After a reload. The visitor's own photograph is gone then, and so is the bet on it.
  const bet = kept()[exhibit.id];
  if (!bet || !stored[exhibit.id]) return;
  form.low.value = bet.low;
  form.high.value = bet.high;
  seal();
  if (bet.judged) {
    judge();
    part(".control").disabled = false;
  }
}

/**
 * The visitor's bets in this tab, by exhibit; none where the browser keeps nothing for pages.
 * @returns {Record<string, {low: string, high: string, judged?: boolean}>}
 */
function kept() {
  try {
    return JSON.parse(sessionStorage.getItem("bets") ?? "{}");
  } catch {
    return {};
  }
}

/**
 * Keep what is new of a bet.
 * @param {string} id of the exhibit
 * @param {object} news
 */
function keep(id, news) {
  const bets = kept();
  bets[id] = { ...bets[id], ...news };
  try {
    sessionStorage.setItem("bets", JSON.stringify(bets));
  } catch {
    // The page works without it; only a reload forgets the bets.
  }
}

/**
 * Enter a verdict, a bet and the truth on the visitor's card.
 * @param {string} verdict
 * @param {any} form of the bet
 * @param {number} truth
 * @param {string} unit
 */
function enter(verdict, { low, high }, truth, unit) {
  const item = find("ol").appendChild(document.createElement("li"));
  item.textContent = `${verdict}. I bet ${low.value} to ${high.value}; it is ${truth} ${unit}.`;
  item.className = low.valueAsNumber <= truth && truth <= high.valueAsNumber ? "held" : "missed";
  const held = document.querySelectorAll(".held").length;
  find("#card p").textContent = `${held} of ${find("ol").children.length} ranges held the truth; four in five should.`;
  find("#bets button").hidden = !navigator.clipboard; // only secure pages have it
}

/**
 * What a model says of a photograph, at each place alone and in even light.
 * @param {File} file
 * @param {string} model
 * @param {(text: string) => void} tell
 */
async function read(file, model, tell) {
  startWorker();
  const { shown } = await request("open", { file, name: file.name }).answer;
  let loaded = 0; // bytes
  const { manifest, vocabulary } = await request("load", { model }, ({ bytes }) => {
    loaded += bytes;
    tell(`Loading the network: ${(loaded / 1e6).toFixed(1)} MB …`);
  }).answer;
  tell("Looking at every place …");
  const say = async (/** @type {object} */ wish) => {
    /** @type {import("./captioner.js").Step[]} */
    const steps = [];
    await request("say", { model, wish }, ({ step }) => step && steps.push(step)).answer;
    return steps;
  };

  const own = await say({ words: [], light: null, once: true, everywhere: true });
  const at = sharpest(own, manifest);
  const ids = own.map(({ word }) => word);
  const said = /** @type {number[][]} */ (own[at].places).map(([best]) => best);
  const even = new Float32Array(said.length).fill(1);
  const inEven = await say({ words: ids.slice(0, at), light: even, once: true });
  tell("");

  const texts = (/** @type {typeof own} */ steps) => steps.map(({ word }) => vocabulary[word]);
  /** @type {Data} */
  const data = {
    grid: manifest.grid,
    words: texts(own.slice(0, -1)),
    at,
    word: vocabulary[ids[at]],
    even: vocabulary[inEven[at].word],
    alpha: [...own[at].alpha],
    sentences: said.map((id) => [...texts(own.slice(0, at)), vocabulary[id], "…"].join(" ")),
    places: said.map((_, place) => place),
    control: { map: [...even], sentence: texts(inEven.slice(0, -1)).join(" ") },
    of: said.length,
    count: said.filter((id) => id === ids[at]).length,
    most: Number(inEven[at].word === ids[at]),
  };
  return { data, shown };
}

/** Show an exhibit, if this page has what it needs; or wait for the visitor's photograph. */
async function show(/** @type {Exhibit} */ exhibit) {
  const data = stored[exhibit.id];
  const picture = data && (await fetch(`trial-${data.picture.replace(/\.\w+$/, ".webp")}`));
  if (data ? !picture.ok : !photographer) return;

  const section = find("section", find("template").content).cloneNode(true);
  /** @type {Find} */
  const part = (selector) => find(selector, section);
  section.id = exhibit.id;
  part("a").href = `#${exhibit.id}`;
  part("a").textContent = exhibit.title;
  part("span").textContent = exhibit.unit;
  part(".question").textContent = exhibit.question;
  part(".rule").textContent = `Evidence, if ${exhibit.rule}; else decoration.`;
  const credit = contents.photographs[data?.picture];
  part(".credit").textContent = credit ? `Photograph by ${credit}` : "";
  find("main").append(section);
  if (data) return hear(exhibit, part, data, await createImageBitmap(await picture.blob()));

  const tell = (/** @type {string} */ text) => (part(".tell").textContent = text);
  part("input").hidden = false;
  part("input").onchange = (/** @type {any} */ { target }) =>
    read(target.files[0], photographer.name, tell)
      .then(({ data, shown }) => hear(exhibit, part, data, shown))
      .catch(({ message }) => tell(message));
}

const files = ["exhibits.json", "trial.json", "page.json"].map((name) => fetch(name));
const [exhibits, stored, contents] = await Promise.all(files.map(async (it) => (await it).json()));
const photographer = contents.models.find((/** @type {any} */ { data }) => data !== "scenes");
for (const exhibit of exhibits) await show(exhibit);
find("#bets button").onclick = () =>
  navigator.clipboard.writeText(`${document.title}\n${find("#card").innerText}\n${location.href}`);
document.getElementById(location.hash.slice(1))?.scrollIntoView();
const course = await fetch(find("#course").href, { method: "HEAD" });
find("#course").hidden = !course.ok;
