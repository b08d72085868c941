#!/usr/bin/env node
// A worker of flowapi for Node 20 or newer, without packages: worker.mjs LANE. docs/worker-guide.md explains it.
import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

const { FLOWAPI_URL: url = "http://127.0.0.1:8080", FLOWAPI_TOKEN: token } = process.env;

// Put yours here. It throws what goes wrong, and throws when it ends early because signal is aborted.
async function work(kind, payload, signal) {
  if (kind === "sleep") return sleep(payload * 1000, payload, { signal });
  throw new Error(`${kind} was not done`);
}

// Repeats a request, with one key, until it is answered, or a lease could be over. Returns the status and the answer.
async function post(path, body) {
  const headers = { "Content-Type": "application/json", Prefer: "wait=5", "Idempotency-Key": randomUUID() };
  if (token) headers.Authorization = `Bearer ${token}`;
  for (const begun = Date.now(); Date.now() - begun < 20_000; await sleep(500)) {
    try {
      const response = await fetch(`${url}/v1${path}`, { method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(10_000) });
      const text = await response.text();
      if (response.status < 500 && response.status !== 429 && !text.includes("idempotency_in_flight")) return [response.status, JSON.parse(text || "{}")];
    } catch {} // the server is away, or something between has answered
  }
  return [0, {}];
}

// Renews the lease until the work is over, and ends it early when the lease is lost, or the server wants that.
async function keep(at, handle, end, over) {
  while (await sleep(5000, true, { signal: over }).catch(() => false)) {
    const [status, answer] = await post(`${at}/renew`, { handle });
    if (status !== 200 || answer.directives.includes("cancel")) end.abort();
  }
}

async function run({ execution, handle }, end) {
  const at = `/executions/${execution.id}`, over = new AbortController();
  keep(at, handle, end, over.signal);
  try {
    const [status, answer] = await post(`${at}/complete`, { handle, result: await work(execution.kind, execution.payload, end.signal) });
    if (status === 413 || status === 422) throw new Error(answer.detail); // this is no result
  } catch (error) {
    if (end.signal.aborted) await post(`${at}/release`, { handle }); // what is to be cancelled is cancelled by that, and what is lost is refused
    else await post(`${at}/fail`, { handle, reason: String(error).slice(0, 4000) });
  }
  over.abort();
}

let stopped = false, end = new AbortController();
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => { stopped = true; end.abort(); });
while (!stopped) {
  const [status, answer] = await post("/claims", { lane: process.argv[2], worker_id: hostname() });
  if (![0, 200, 204].includes(status)) throw new Error(answer.detail);
  if (!stopped) end = new AbortController();
  for (const claim of answer.claims ?? []) await run(claim, end);
}
