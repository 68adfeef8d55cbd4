// The gateway of a sandbox in which nothing but plain commands can be run (docs/callbacks.md): the agent speaks HTTP
// to it, it puts each request into a file, and the daemon, which looks for such files by commands, answers with another.
// All that decides anything is decided by the daemon; what is checked here only spares it work.
import { createServer } from "node:http";
import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { createHash, randomUUID, timingSafeEqual } from "node:crypto";
import { join } from "node:path";

const PASSED_ON = ["accept", "content-type", "if-match", "if-none-match"];

function positive(name, fallback) {
  const value = Number(process.env[name]);
  return Number.isFinite(value) && value > 0 ? value : fallback;
}

const queue = process.env.PAPERCLIP_BRIDGE_QUEUE_DIR;
const token = process.env.PAPERCLIP_BRIDGE_TOKEN;
const host = process.env.PAPERCLIP_BRIDGE_HOST || "127.0.0.1";
const port = positive("PAPERCLIP_BRIDGE_PORT", 0);
const pollMs = positive("PAPERCLIP_BRIDGE_POLL_INTERVAL_MS", 100);
const waitMs = positive("PAPERCLIP_BRIDGE_RESPONSE_TIMEOUT_MS", 30000);
const maxDepth = positive("PAPERCLIP_BRIDGE_MAX_QUEUE_DEPTH", 64);
const maxBody = positive("PAPERCLIP_BRIDGE_MAX_BODY_BYTES", 262144);

if (!queue || !token) {
  console.error("PAPERCLIP_BRIDGE_QUEUE_DIR and PAPERCLIP_BRIDGE_TOKEN are required.");
  process.exit(1);
}

const requests = join(queue, "requests");
const responses = join(queue, "responses");
const digest = (text) => createHash("sha256").update(text).digest();
const wanted = digest(`Bearer ${token}`);

class Refusal extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

// A file appears under its name complete or not at all.
async function put(path, value) {
  await writeFile(`${path}.tmp`, `${JSON.stringify(value)}\n`, { mode: 0o600 });
  await rename(`${path}.tmp`, path);
}

async function readBody(req) {
  const parts = [];
  let size = 0;
  for await (const part of req) {
    size += part.length;
    if (size > maxBody) throw new Refusal(502, "Bridge request body exceeded the configured size limit.");
    parts.push(part);
  }
  return Buffer.concat(parts).toString("utf8");
}

async function answerTo(id) {
  const path = join(responses, `${id}.json`);
  const until = Date.now() + waitMs;
  for (;;) {
    try {
      const text = await readFile(path, "utf8");
      await rm(path, { force: true });
      return JSON.parse(text);
    } catch (problem) {
      if (problem.code !== "ENOENT") throw problem;
    }
    if (Date.now() >= until) throw new Refusal(502, "Timed out waiting for host bridge response.");
    await new Promise((done) => setTimeout(done, pollMs));
  }
}

async function pass(req) {
  if (!timingSafeEqual(digest(req.headers.authorization ?? ""), wanted)) throw new Refusal(401, "Invalid bridge token.");
  const waiting = (await readdir(requests)).filter((name) => name.endsWith(".json"));
  if (waiting.length >= maxDepth) throw new Refusal(503, "Bridge request queue is full.");
  const at = req.url.indexOf("?");
  const headers = {};
  for (const name of PASSED_ON) if (typeof req.headers[name] === "string") headers[name] = req.headers[name];
  const reads = req.method === "GET" || req.method === "HEAD";
  if (!reads && !/json/i.test(headers["content-type"] ?? ""))
    throw new Refusal(415, "Bridge only accepts JSON request bodies.");
  const id = randomUUID();
  const path = join(requests, `${id}.json`);
  await put(path, {
    id,
    method: req.method,
    path: at < 0 ? req.url : req.url.slice(0, at),
    query: at < 0 ? "" : req.url.slice(at),
    headers,
    body: reads ? "" : await readBody(req),
    createdAt: new Date().toISOString(),
  });
  try {
    return await answerTo(id);
  } finally {
    await rm(path, { force: true });
  }
}

const server = createServer(async (req, res) => {
  let answer;
  try {
    answer = await pass(req);
  } catch (problem) {
    answer = {
      status: problem instanceof Refusal ? problem.status : 502,
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ error: problem.message }),
    };
  }
  const headers = {};
  for (const [name, value] of Object.entries(answer.headers ?? {}))
    if (typeof value === "string" && name.toLowerCase() !== "content-length") headers[name] = value;
  res.writeHead(typeof answer.status === "number" ? answer.status : 200, headers);
  res.end(typeof answer.body === "string" ? answer.body : "");
});

function stop() {
  server.close(() => process.exit(0));
  server.closeIdleConnections?.();
}
process.on("SIGTERM", stop);
process.on("SIGINT", stop);

await Promise.all([requests, responses, join(queue, "logs")].map((dir) => mkdir(dir, { recursive: true, mode: 0o700 })));
server.listen(port, host, async () => {
  const { port: bound } = server.address();
  await put(join(queue, "ready.json"), {
    pid: process.pid,
    host,
    port: bound,
    baseUrl: `http://${host}:${bound}`,
    startedAt: new Date().toISOString(),
  });
});
