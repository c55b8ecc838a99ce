// Requests to worker.js, where everything runs that takes time.

/**
 * @typedef {object} Pending a request that has no answer yet
 * @property {(message: any) => void} onMessage
 * @property {(message: any) => void} fulfil
 * @property {(error: Error) => void} reject
 */

/** @type {Map<number, Pending>} by id */
const pending = new Map();

let lastId = 0;

/** A number that no request and no caption has. */
export const newId = () => ++lastId;

/** @type {() => void} */
let start;

/** The worker, as soon as `startWorker` was called. */
export const worker = new Promise((resolve) => {
  start = () => resolve(undefined);
}).then(newWorker);

/** Start the worker, once the first words are shown: until then the processor has enough to do. */
export function startWorker() {
  start();
}

async function newWorker() {
  await registerServiceWorker();
  // What was loaded before the service worker could keep it is asked for once more.
  for (const { name } of performance.getEntriesByType("resource")) fetch(name).catch(() => {});
  const worker = new Worker("worker.js", { type: "module" });
  worker.onmessage = received;
  worker.onerror = () => {
    const message = "The page has lost its worker, perhaps for want of memory. Load it again.";
    for (const { reject } of pending.values()) reject(new Error(message));
  };
  return worker;
}

/** The page works offline if all that it loads passes through its service worker. */
async function registerServiceWorker() {
  const { serviceWorker } = navigator;
  if (!serviceWorker || serviceWorker.controller) return;
  const controlled = new Promise((resolve) => {
    serviceWorker.addEventListener("controllerchange", resolve, { once: true });
  });
  const patience = new Promise((resolve) => setTimeout(resolve, 3000));
  try {
    await serviceWorker.register("sw.js");
  } catch {
    return; // not every browser may
  }
  await Promise.race([controlled, patience]);
}

/**
 * Ask the worker for something.
 * @param {string} action
 * @param {object} details
 * @param {(message: any) => void} onMessage for what it tells before its answer
 * @returns {{id: number, answer: Promise<any>}}
 */
export function request(action, details = {}, onMessage = () => {}) {
  const id = newId();
  const answer = new Promise((fulfil, reject) => {
    pending.set(id, { onMessage, fulfil, reject });
  });
  worker.then((it) => it.postMessage({ id, do: action, ...details }));
  return { id, answer };
}

/** @param {MessageEvent} event */
function received({ data }) {
  const { id, done, failed } = data;
  const asked = pending.get(id);
  if (!asked) return;

  if (failed !== undefined) {
    pending.delete(id);
    asked.reject(new Error(failed));
  } else if (done) {
    pending.delete(id);
    asked.fulfil(data);
  } else {
    asked.onMessage(data);
  }
}
