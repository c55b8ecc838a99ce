// Keeps every file of the page that was loaded, so that the page also works offline. build.js
// writes the version and the shell.

const VERSION = "";
/** @type {string[]} what the page needs before it can load anything else */
const SHELL = [];
const CACHE = `satlib-${VERSION}`;

const worker = /** @type {any} */ (self);

worker.addEventListener("install", (/** @type {any} */ event) => {
  event.waitUntil(keepShell());
});

worker.addEventListener("activate", (/** @type {any} */ event) => {
  event.waitUntil(takeOver());
});

worker.addEventListener("fetch", (/** @type {any} */ event) => {
  const { method, url } = event.request;
  if (method !== "GET" || new URL(url).origin !== location.origin) return;
  event.respondWith(answer(event));
});

async function keepShell() {
  const cache = await caches.open(CACHE);
  await cache.addAll(SHELL.map((name) => new Request(name, { cache: "no-cache" })));
  await worker.skipWaiting();
}

/** Forget what earlier versions of the page kept. */
async function takeOver() {
  for (const name of await caches.keys()) {
    if (name.startsWith("satlib-") && name !== CACHE) await caches.delete(name);
  }
  await worker.clients.claim();
}

/**
 * The copy of a file, or the file, which is kept.
 * @param {any} event
 */
async function answer(event) {
  const { request } = event;
  const cache = await caches.open(CACHE);
  const kept = await cache.match(request);
  // The page asks with "reload" for a file whose copy is damaged.
  if (kept && request.cache !== "reload") return kept;

  const response = await fetch(request);
  if (response.status === 200) event.waitUntil(cache.put(request, response.clone()));
  return response;
}
