// Providers on the published plugin SDK: `e2b` and `daytona` by the official clients of those services, `bridge` by plain
// requests, as Paperclip's provider speaks to the worker that it deploys at Cloudflare. All pause what may be used again.
import { definePlugin, runWorker } from "@paperclipai/plugin-sdk";
import { NotFoundError, Sandbox } from "e2b";

const cloud = ({ url, apiKey }) => ({ apiUrl: url, apiKey, requestTimeoutMs: 20000 });

const e2b = {
  async acquire({ config, runId, agentId }) {
    const made = await Sandbox.create("base", { ...cloud(config), metadata: { runId, agentId: agentId ?? "none" } });
    return { providerLeaseId: made.sandboxId, metadata: { remoteCwd: "/home/user" } };
  },
  async resume({ config, providerLeaseId }) {
    try {
      await Sandbox.connect(providerLeaseId, cloud(config));
      return { providerLeaseId, metadata: { remoteCwd: "/home/user" } };
    } catch (e) {
      if (e instanceof NotFoundError) return { providerLeaseId: null };
      throw e;
    }
  },
  pause: ({ config, providerLeaseId }) => Sandbox.betaPause(providerLeaseId, cloud(config)),
  remove: ({ config, providerLeaseId }) => Sandbox.kill(providerLeaseId, cloud(config)),
};

async function ask({ url, apiKey }, method, path, body) {
  const answer = await fetch(`${url}/api/paperclip-sandbox/v1${path}`, {
    method, headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json" },
    body: body && JSON.stringify(body),
  });
  const said = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(said.message), { code: said.error });
  return said;
}

const bridge = {
  acquire: ({ config, environmentId, runId, issueId }) =>
    ask(config, "POST", "/leases/acquire", { environmentId, runId, issueId, reuseLease: config.reuseLease }),
  async resume({ config, providerLeaseId }) {
    try {
      return await ask(config, "POST", "/leases/resume", { providerLeaseId });
    } catch (e) {
      if (e.code === "sandbox_state_lost") return { providerLeaseId: null };
      throw e;
    }
  },
  pause: ({ config, providerLeaseId }) =>
    ask(config, "POST", "/leases/release", { providerLeaseId, reuseLease: config.reuseLease }),
  remove: ({ config, providerLeaseId }) => ask(config, "DELETE", `/leases/${encodeURIComponent(providerLeaseId)}`),
  execute: ({ config, lease, command, args, cwd }) =>
    ask(config, "POST", "/exec", { providerLeaseId: lease.providerLeaseId, command, args, cwd }),
};

// Loaded when it is needed: it is large, and not every test has it.
async function client({ url, apiKey }) {
  const { Daytona } = await import("@daytonaio/sdk");
  return new Daytona({ apiUrl: `${url}/daytona`, apiKey, target: "us" });
}

const daytona = {
  async acquire({ config, runId }) {
    const made = await (await client(config)).create({ snapshot: "base", labels: { runId } });
    return { providerLeaseId: made.id, metadata: { remoteCwd: "/home/daytona" } };
  },
  async resume({ config, providerLeaseId }) {
    try {
      await (await (await client(config)).get(providerLeaseId)).start();
      return { providerLeaseId, metadata: { remoteCwd: "/home/daytona" } };
    } catch (e) {
      if (e.statusCode === 404) return { providerLeaseId: null };
      throw e;
    }
  },
  pause: async ({ config, providerLeaseId }) => (await (await client(config)).get(providerLeaseId)).stop(),
  async remove({ config, providerLeaseId }) {
    try {
      const cloud = await client(config);
      await cloud.delete(await cloud.get(providerLeaseId));
    } catch (e) {
      if (e.statusCode !== 404) throw e;
    }
  },
};

const drivers = { e2b, bridge, daytona };
const plugin = definePlugin({
  async setup() {},
  onEnvironmentValidateConfig: async ({ config }) => ({ ok: true, normalizedConfig: config }),
  onEnvironmentProbe: async () => ({ ok: true }),
  onEnvironmentAcquireLease: (p) => drivers[p.driverKey].acquire(p),
  onEnvironmentResumeLease: (p) => drivers[p.driverKey].resume(p),
  async onEnvironmentReleaseLease(p) {
    await drivers[p.driverKey][p.config.reuseLease ? "pause" : "remove"](p);
  },
  async onEnvironmentDestroyLease(p) {
    await drivers[p.driverKey].remove(p);
  },
  onEnvironmentExecute: (p) => drivers[p.driverKey].execute(p),
});

export default plugin;
runWorker(plugin, import.meta.url);
