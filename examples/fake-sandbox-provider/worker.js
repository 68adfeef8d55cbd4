// A sandbox here is a directory beneath the worker's temporary directory. It outlives the worker: the lease's
// metadata say where it is, so a worker that was started again finds what an earlier one made. Ids follow from
// the run and a count, so the same calls give the same ids.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { definePlugin, runWorker } from "@paperclipai/plugin-sdk";

const DRIVER = "fake-plugin";
const DEFAULTS = { image: "fake:latest", timeoutMs: 300000, reuseLease: false };
const KILL_AFTER_MS = 2000;

let acquired = 0;

function readConfig(config) {
  const errors = [];
  const image = String(config.image ?? DEFAULTS.image).trim() || DEFAULTS.image;
  const timeoutMs = Number(config.timeoutMs ?? DEFAULTS.timeoutMs);
  if (!Number.isInteger(timeoutMs) || timeoutMs < 1) errors.push("timeoutMs must be a whole number above 0.");
  return { errors, config: { image, timeoutMs, reuseLease: config.reuseLease === true } };
}

function fakeUuid(seed) {
  const h = createHash("sha256").update(seed).digest("hex");
  return `${h.slice(0, 8)}-${h.slice(8, 12)}-4${h.slice(13, 16)}-8${h.slice(17, 20)}-${h.slice(20, 32)}`;
}

const rootOf = (leaseId) => join(tmpdir(), `fake-plugin-${leaseId.split("/").pop()}`);

function lease(providerLeaseId, config, resumedLease) {
  const fakeRootDir = rootOf(providerLeaseId);
  return {
    providerLeaseId,
    metadata: {
      provider: DRIVER,
      image: config.image,
      reuseLease: config.reuseLease,
      remoteCwd: join(fakeRootDir, "workspace"),
      fakeRootDir,
      resumedLease,
    },
  };
}

// Only what can be one of ours is ever removed.
async function remove(providerLeaseId) {
  if (!providerLeaseId) return;
  const root = rootOf(providerLeaseId);
  if (dirname(root) === tmpdir() && basename(root).startsWith("fake-plugin-"))
    await rm(root, { recursive: true, force: true });
}

function execute(params, cwd, timeoutMs) {
  const args = params.args ?? [];
  const startedAt = new Date().toISOString();
  return new Promise((resolve, reject) => {
    const child = spawn(params.command, args, {
      cwd,
      env: { PATH: process.env.PATH, ...params.env },
      detached: true, // a group of its own, so that all of it can be ended
    });
    const out = [];
    const err = [];
    let timedOut = false;
    const end = (signal) => {
      try {
        process.kill(-child.pid, signal);
      } catch {
        // it is gone already
      }
    };
    const timer = setTimeout(() => {
      timedOut = true;
      end("SIGTERM");
      setTimeout(end, KILL_AFTER_MS, "SIGKILL").unref();
    }, timeoutMs);
    child.on("error", (error) => {
      clearTimeout(timer);
      reject(error);
    });
    child.stdout.on("data", (chunk) => out.push(chunk));
    child.stderr.on("data", (chunk) => err.push(chunk));
    child.stdin.on("error", () => {}); // a command need not read
    child.stdin.end(params.stdin ?? "");
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      resolve({
        exitCode: timedOut ? null : code,
        signal,
        timedOut,
        stdout: Buffer.concat(out).toString("utf8"),
        stderr: Buffer.concat(err).toString("utf8"),
        metadata: { startedAt, commandLine: [params.command, ...args].join(" ") },
      });
    });
  });
}

const plugin = definePlugin({
  async setup(ctx) {
    ctx.logger.info("Fake sandbox provider plugin ready");
  },

  async onHealth() {
    return { status: "ok", message: "Fake sandbox provider plugin healthy" };
  },

  async onEnvironmentValidateConfig({ config }) {
    const checked = readConfig(config);
    return checked.errors.length
      ? { ok: false, errors: checked.errors }
      : { ok: true, normalizedConfig: checked.config };
  },

  async onEnvironmentProbe({ config }) {
    const checked = readConfig(config);
    if (checked.errors.length) return { ok: false, summary: checked.errors[0] };
    return {
      ok: true,
      summary: `Fake sandbox provider is ready for image ${checked.config.image}.`,
      metadata: { provider: DRIVER, ...checked.config },
    };
  },

  async onEnvironmentAcquireLease({ config, runId }) {
    const id = `${DRIVER}://${runId}/${fakeUuid(`${runId} ${acquired++}`)}`;
    const made = lease(id, readConfig(config).config, false);
    await mkdir(made.metadata.remoteCwd, { recursive: true });
    return made;
  },

  async onEnvironmentResumeLease({ config, providerLeaseId }) {
    const found = lease(providerLeaseId, readConfig(config).config, true);
    return existsSync(found.metadata.remoteCwd) ? found : { providerLeaseId: null };
  },

  async onEnvironmentReleaseLease({ config, providerLeaseId }) {
    if (!readConfig(config).config.reuseLease) await remove(providerLeaseId);
  },

  async onEnvironmentDestroyLease({ providerLeaseId }) {
    await remove(providerLeaseId);
  },

  async onEnvironmentRealizeWorkspace({ lease: held }) {
    const cwd = join(rootOf(held.providerLeaseId), "workspace");
    await mkdir(cwd, { recursive: true });
    return { cwd, metadata: { provider: DRIVER, remoteCwd: cwd } };
  },

  async onEnvironmentExecute(params) {
    const { providerLeaseId } = params.lease;
    if (!providerLeaseId)
      return { exitCode: 1, timedOut: false, stdout: "", stderr: "No provider lease ID available for execution." };
    const cwd = params.cwd ?? join(rootOf(providerLeaseId), "workspace");
    return execute(params, cwd, params.timeoutMs ?? readConfig(params.config).config.timeoutMs);
  },
});

export default plugin;
runWorker(plugin, import.meta.url);
