// The bridge between a provider `cloudflare` and the sandboxes of one Worker: who may ask, which routes there are, how a
// command is run. It speaks the protocol of Paperclip's bridge (prefix /api/paperclip-sandbox/v1), and adds an HMAC as a
// second proof, a list of the sandboxes, and files. Nothing here depends on how a sandbox is had: `deps` is
//
//     token                   the shared secret
//     sandbox(id, options)    a sandbox of @cloudflare/sandbox
//     leases                  put(id, owner), remove(id), has(id), list(): what exists

const PREFIX = "/api/paperclip-sandbox/v1";
const VERSION = "0.1.0";
const SKEW_S = 300;
const MAX_BODY = 64 << 20;
const KEEPALIVE_MS = 15000;

class BridgeError extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }
}

// ---- who may ask

const encoder = new TextEncoder();
const hex = (bytes) => [...new Uint8Array(bytes)].map((b) => b.toString(16).padStart(2, "0")).join("");
const sha256 = (data) => crypto.subtle.digest("SHA-256", typeof data === "string" ? encoder.encode(data) : data);

// Both are hashed first, so that neither length nor content shows in the time that this takes.
async function sameText(a, b) {
  const [x, y] = await Promise.all([sha256(a), sha256(b)]);
  const left = new Uint8Array(x), right = new Uint8Array(y);
  let differ = 0;
  for (let i = 0; i < left.length; i++) differ |= left[i] ^ right[i];
  return differ === 0;
}

export function bearerToken(header) {
  const found = /^bearer +(\S.*)$/i.exec(header ?? "");
  return found ? found[1].trim() : null;
}

export async function bearerMatches(header, expected) {
  const given = bearerToken(header);
  return Boolean(given && expected) && (await sameText(given, expected));
}

// X-Berth-Signature: t=SECONDS,v1=HEX. The text that is signed has the body as its hash.
export async function signature(token, { method, host, path, time, body }) {
  const key = await crypto.subtle.importKey("raw", encoder.encode(token), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const text = ["v1", method, host, path, time, hex(await sha256(body))].join("\n");
  return hex(await crypto.subtle.sign("HMAC", key, encoder.encode(text)));
}

async function isSigned(request, url, body, token, nowS) {
  const found = /^t=(\d{1,12}),v1=([0-9a-f]{64})$/.exec(request.headers.get("x-berth-signature") ?? "");
  if (!found || !token || Math.abs(nowS - Number(found[1])) > SKEW_S) return false;
  const wanted = await signature(token, { method: request.method, host: url.host, path: url.pathname + url.search, time: found[1], body });
  return sameText(found[2], wanted);
}

// ---- names

export function normalizeId(text) {
  return text.toLowerCase().replace(/[^a-z0-9-]+/g, "-").replace(/-+/g, "-").replace(/^-|-$/g, "");
}

export function leaseId({ environmentId, runId, reuseLease, owner }, random = () => crypto.randomUUID().slice(0, 8)) {
  if (owner?.place) return normalizeId(`pc-${owner.place}`); // a second acquire for the same place means the same sandbox
  return normalizeId(reuseLease ? `pc-env-${environmentId}` : `pc-${runId}-${random()}`);
}

export const sentinelPath = (cwd) => `${cwd.replace(/\/+$/, "")}/.paperclip-lease.json`;
export const isTimeout = (error) => /timeout|timed out/i.test(`${error?.name ?? ""} ${error?.message ?? error}`);
const isMissingSession = (error) => /not found|does not exist|no such session/i.test(String(error?.message ?? error));
export const quote = (text) => `'${String(text).replaceAll("'", `'"'"'`)}'`;

// ---- settings of a request

function settings(body) {
  return {
    cwd: typeof body.requestedCwd === "string" && body.requestedCwd.startsWith("/") ? body.requestedCwd : "/workspace/paperclip",
    strategy: body.sessionStrategy === "default" ? "default" : "named",
    sessionId: body.sessionId || "paperclip",
    timeoutMs: Number(body.timeoutMs) > 0 ? Math.trunc(Number(body.timeoutMs)) : 300000,
    keepAlive: body.keepAlive === true,
    sleepAfter: body.sleepAfter || "10m",
    normalizeId: body.normalizeId !== false,
  };
}

const sandboxOf = (deps, id, s) => deps.sandbox(id, { keepAlive: s.keepAlive, sleepAfter: s.sleepAfter, normalizeId: s.normalizeId });
const execHandle = (deps, id) => deps.sandbox(id, { keepAlive: false, sleepAfter: "10m", normalizeId: true });

// A session is made only where it is missing: making one that is there would end what runs in it.
async function runner(sandbox, s) {
  if (s.strategy === "default") return sandbox;
  try {
    const session = await sandbox.getSession(s.sessionId);
    if (session) return session;
  } catch (e) {
    if (!isMissingSession(e)) throw e;
  }
  return sandbox.createSession({ id: s.sessionId });
}

// ---- commands

const LOGIN = [
  "for f in /etc/profile \"$HOME/.profile\"; do [ ! -r \"$f\" ] || . \"$f\"; done >/dev/null 2>&1",
  "if [ -r \"$HOME/.bash_profile\" ]; then . \"$HOME/.bash_profile\"; elif [ -r \"$HOME/.bashrc\" ]; then . \"$HOME/.bashrc\"; fi >/dev/null 2>&1",
  "[ ! -r \"$HOME/.zprofile\" ] || . \"$HOME/.zprofile\" >/dev/null 2>&1",
].join("; ");

export function commandLine({ command, args = [], cwd, env = {} }, stdinPath) {
  const pairs = Object.entries(env).map(([name, value]) => {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) throw new BridgeError(400, "invalid_request", `Invalid environment variable name: ${name}`);
    return quote(`${name}=${value}`);
  });
  const words = [...(pairs.length ? ["env", ...pairs] : []), quote(command), ...args.map(quote)];
  const script = `${LOGIN}; cd ${quote(cwd)} && exec ${words.join(" ")}${stdinPath ? ` < ${quote(stdinPath)}` : ""}`;
  return `sh -lc ${quote(script)}`;
}

function resultOf(result) {
  return {
    exitCode: Number.isInteger(result.exitCode) ? result.exitCode : result.success === false ? 1 : 0,
    signal: null, timedOut: false, stdout: result.stdout ?? "", stderr: result.stderr ?? "",
  };
}

export async function execute(sandbox, body, onOutput) {
  const s = settings(body);
  const target = await runner(sandbox, s);
  const stdinPath = body.stdin ? `/tmp/.paperclip-bridge-stdin-${crypto.randomUUID()}` : null;
  const line = commandLine({ ...body, cwd: body.cwd || s.cwd }, stdinPath);
  const options = { cwd: "/", timeout: s.timeoutMs };
  if (onOutput) Object.assign(options, { stream: true, onOutput });
  try {
    if (stdinPath) await target.writeFile(stdinPath, body.stdin);
    return resultOf(await target.exec(line, options));
  } catch (e) {
    if (!isTimeout(e)) throw e;
    // What runs on in there must not hold up the next command.
    await (s.strategy === "named" ? sandbox.deleteSession(s.sessionId) : sandbox.destroy()).catch(() => {});
    return { exitCode: null, signal: null, timedOut: true, stdout: "", stderr: String(e.message ?? e) };
  } finally {
    if (stdinPath) await target.deleteFile(stdinPath).catch(() => {});
  }
}

function streamed(run) {
  const { readable, writable } = new TransformStream();
  const writer = writable.getWriter();
  const send = (text) => writer.write(encoder.encode(text)).catch(() => {});
  const event = (name, data) => send(`event: ${name}\ndata: ${JSON.stringify(data)}\n\n`);
  const timer = setInterval(() => send(": keepalive\n\n"), KEEPALIVE_MS);
  run((stream, data) => event(stream, { data }))
    .then((result) => event("complete", result), (e) => event("error", { error: String(e.message ?? e) }))
    .finally(() => { clearInterval(timer); return writer.close().catch(() => {}); });
  return new Response(readable, { headers: { "content-type": "text/event-stream", "cache-control": "no-cache" } });
}

// ---- leases

function leaseAnswer(id, s, resumedLease) {
  return {
    providerLeaseId: id,
    metadata: {
      provider: "cloudflare", remoteCwd: s.cwd, sandboxId: id, sessionStrategy: s.strategy, sessionId: s.sessionId,
      keepAlive: s.keepAlive, sleepAfter: s.sleepAfter, normalizeId: s.normalizeId, resumedLease, files: true,
    },
  };
}

async function runSure(target, script, timeout) {
  const done = await target.exec(`sh -lc ${quote(script)}`, { cwd: "/", timeout });
  if (resultOf(done).exitCode !== 0) throw new BridgeError(502, "sandbox_failed", done.stderr || `the sandbox cannot run: ${script}`);
  return done.stdout ?? "";
}

function writeSentinel(target, id, s, resumedLease) {
  const said = { provider: "cloudflare", providerLeaseId: id, remoteCwd: s.cwd, sessionStrategy: s.strategy, sessionId: s.sessionId,
    resumedLease, updatedAt: new Date().toISOString() };
  return runSure(target, `printf %s ${quote(JSON.stringify(said))} > ${quote(sentinelPath(s.cwd))}`, s.timeoutMs);
}

export async function acquire(deps, body) {
  if (!body.environmentId || !body.runId) throw new BridgeError(400, "invalid_request", "environmentId and runId are required.");
  const s = settings(body), id = leaseId(body);
  await deps.leases.put(id, body.owner); // before there is anything that could be lost
  const sandbox = sandboxOf(deps, id, s);
  try {
    const target = await runner(sandbox, s);
    await runSure(target, `mkdir -p ${quote(s.cwd)}`, s.timeoutMs);
    await writeSentinel(target, id, s, false);
  } catch (e) {
    if (!body.reuseLease) await destroy(deps, id).catch(() => {});
    throw e;
  }
  return leaseAnswer(id, s, false);
}

export async function resume(deps, body) {
  const id = required(body.providerLeaseId, "providerLeaseId");
  const s = settings(body), target = await runner(sandboxOf(deps, id, s), s);
  const found = await target.exec(`sh -lc ${quote(`test -s ${quote(sentinelPath(s.cwd))}`)}`, { cwd: "/", timeout: s.timeoutMs });
  if (resultOf(found).exitCode !== 0) throw new BridgeError(409, "sandbox_state_lost", `The sandbox ${id} has lost its files.`);
  await writeSentinel(target, id, s, true);
  return leaseAnswer(id, s, true);
}

async function destroy(deps, id) {
  await deps.sandbox(id, { keepAlive: false, sleepAfter: "10m", normalizeId: true }).destroy();
  await deps.leases.remove(id);
}

async function probe(deps, body) {
  const s = settings(body), id = normalizeId(`pc-probe-${crypto.randomUUID()}`);
  await deps.leases.put(id, null);
  try {
    const target = await runner(sandboxOf(deps, id, s), s);
    const stdout = await runSure(target, `mkdir -p ${quote(s.cwd)} && cd ${quote(s.cwd)} && pwd`, s.timeoutMs);
    return { ok: true, summary: "Connected to Cloudflare sandbox bridge.",
      metadata: { provider: "cloudflare", remoteCwd: s.cwd, namedSessions: s.strategy === "named", stdout } };
  } finally {
    await destroy(deps, id).catch(() => {});
  }
}

function required(value, name) {
  if (typeof value !== "string" || !value) throw new BridgeError(400, "invalid_request", `${name} is required.`);
  return value;
}

// ---- files

const toBase64 = (bytes) => { let text = ""; for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192)); return btoa(text); };
const fromBase64 = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

function filePath(url) {
  const path = url.searchParams.get("path") ?? "";
  if (!path.startsWith("/") || path.split("/").includes("..")) throw new BridgeError(400, "invalid_request", "path must be absolute, without ..");
  return path;
}

// ---- routes

const json = (value, status = 200) => Response.json(value, { status });

async function route(method, path, url, bytes, deps) {
  const object = () => {
    try {
      const value = JSON.parse(new TextDecoder().decode(bytes));
      if (value && typeof value === "object" && !Array.isArray(value)) return value;
    } catch { /* said below */ }
    throw new BridgeError(400, "invalid_request", "The body must be a JSON object.");
  };
  const lease = /^\/leases\/([^/]+)(\/files)?$/.exec(path);
  switch (`${method} ${lease ? (lease[2] ? "/leases/:id/files" : "/leases/:id") : path}`) {
    case "GET /health":
      return json({ ok: true, provider: "cloudflare", bridgeVersion: VERSION,
        capabilities: { reuseLease: true, namedSessions: true, previewUrls: false, hmac: true, leases: true, files: true } });
    case "POST /probe": return json(await probe(deps, object()));
    case "GET /leases": return json({ leases: await deps.leases.list() });
    case "DELETE /leases/:id": await destroy(deps, decodeURIComponent(lease[1])); return json({ ok: true });
    case "PUT /leases/:id/files":
      await execHandle(deps, decodeURIComponent(lease[1])).writeFile(filePath(url), toBase64(new Uint8Array(bytes)), { encoding: "base64" });
      return json({ ok: true });
    case "GET /leases/:id/files": {
      const file = await execHandle(deps, decodeURIComponent(lease[1])).readFile(filePath(url), { encoding: "base64" });
      return new Response(fromBase64(file.content), { headers: { "content-type": "application/octet-stream" } });
    }
    case "POST /exec": {
      const body = object();
      const id = required(body.providerLeaseId, "providerLeaseId");
      required(body.command, "command");
      // A handle on something that was destroyed would make it anew, empty.
      if (body.berth && !(await deps.leases.has(id))) throw new BridgeError(404, "sandbox_not_found", `There is no sandbox ${id}.`);
      const run = (onOutput) => execute(execHandle(deps, id), body, onOutput);
      commandLine({ ...body, cwd: body.cwd || "/" }); // a bad request is refused before a stream begins
      return body.streamOutput ? streamed(run) : json(await run());
    }
    default:
  }
  // POST /leases/acquire and the like match the pattern of an id.
  switch (`${method} ${path}`) {
    case "POST /leases/acquire": return json(await acquire(deps, object()));
    case "POST /leases/resume": {
      const body = object();
      if (body.berth && !(await deps.leases.has(required(body.providerLeaseId, "providerLeaseId"))))
        throw new BridgeError(404, "sandbox_not_found", `There is no sandbox ${body.providerLeaseId}.`);
      return json(await resume(deps, body));
    }
    case "POST /leases/release": {
      const body = object();
      if (body.providerLeaseId && !body.reuseLease) await destroy(deps, body.providerLeaseId);
      return json({ ok: true });
    }
    default: throw new BridgeError(404, "not_found", `No bridge route matched ${method} ${path}.`);
  }
}

export async function handle(request, deps) {
  try {
    const url = new URL(request.url);
    if (Number(request.headers.get("content-length") ?? 0) > MAX_BODY) throw new BridgeError(413, "too_large", "The body is larger than 64 MiB.");
    const bytes = await request.arrayBuffer();
    if (bytes.byteLength > MAX_BODY) throw new BridgeError(413, "too_large", "The body is larger than 64 MiB.");
    if (!(await bearerMatches(request.headers.get("authorization"), deps.token)) &&
        !(await isSigned(request, url, bytes, deps.token, Date.now() / 1000)))
      throw new BridgeError(401, "unauthorized", "Missing or invalid bridge bearer token.");
    const path = url.pathname.replace(/\/+$/, "");
    if (!path.startsWith(`${PREFIX}/`)) throw new BridgeError(404, "not_found", `No bridge route matched ${request.method} ${path}.`);
    return await route(request.method, path.slice(PREFIX.length), url, bytes, deps);
  } catch (e) {
    return json({ error: e.code && e.status ? e.code : "internal_error", message: String(e.message ?? e) }, e.status ?? 500);
  }
}
