// Keeps every file of the page that was loaded, so that the page also works offline. build.js writes the version.

const VERSION = "";
const SHELL = ["./", "page.css", "page.js", "light.js", "worker.js", "captioner.js", "resize.js", "ort.wasm.bundle.min.mjs", "page.json"];

const worker = /** @type {any} */ (self);

worker.addEventListener("install", (/** @type {any} */ event) => {
  const keep = async () => {
    const cache = await caches.open(`satlib-${VERSION}`);
    await cache.addAll(SHELL.map((name) => new Request(name, { cache: "no-cache" })));
    await worker.skipWaiting();
  };
  event.waitUntil(keep());
});

worker.addEventListener("activate", (/** @type {any} */ event) => {
  const tidy = async () => {
    for (const name of await caches.keys()) if (name.startsWith("satlib-") && name !== `satlib-${VERSION}`) await caches.delete(name);
    await worker.clients.claim();
  };
  event.waitUntil(tidy());
});

worker.addEventListener("fetch", (/** @type {any} */ event) => {
  if (event.request.method !== "GET" || new URL(event.request.url).origin !== location.origin) return;
  const answer = async () => {
    const cache = await caches.open(`satlib-${VERSION}`);
    const kept = await cache.match(event.request);
    if (kept && event.request.cache !== "reload") return kept; // the page asks so for a file whose copy is damaged
    const response = await fetch(event.request);
    if (response.status === 200) event.waitUntil(cache.put(event.request, response.clone()));
    return response;
  };
  event.respondWith(answer());
});
