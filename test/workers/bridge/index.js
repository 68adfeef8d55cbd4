// Berth's Worker (deploy/cloudflare-bridge) for tests: its own routes, rules and list of leases, on sandboxes that a
// program of the test keeps (test/it/cloudflarestand.py), since containers need an account.
import { handle } from "./bridge.js";
import { LeaseIndex, leaseIndex } from "./leases.js";

export { LeaseIndex };

class Target {
  constructor(executor, sandbox, session = null) {
    Object.assign(this, { executor, sandbox, session });
  }

  async ask(method, args, onLine) {
    const answer = await this.executor.fetch("http://executor/", {
      method: "POST", body: JSON.stringify({ sandbox: this.sandbox, session: this.session, method, args }),
    });
    let rest = "", last = null;
    for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + piece).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        last = JSON.parse(line);
        if (last.stream && onLine) onLine(last.stream, last.data);
      }
    }
    if (!last || last.error) throw Object.assign(new Error(last?.error ?? "the sandbox went away"), { name: last?.name ?? "Error" });
    return last.result;
  }

  exec(command, options) {
    const shown = { ...options };
    if (options.onOutput) shown.onOutput = "function";
    return this.ask("exec", [command, shown], options.onOutput);
  }

  writeFile(...args) { return this.ask("writeFile", args); }
  readFile(...args) { return this.ask("readFile", args); }
  deleteFile(...args) { return this.ask("deleteFile", args); }
}

class Sandbox extends Target {
  async getSession(id) { await this.ask("getSession", [id]); return new Target(this.executor, this.sandbox, id); }
  async createSession(options) { await this.ask("createSession", [options]); return new Target(this.executor, this.sandbox, options.id); }
  deleteSession(id) { return this.ask("deleteSession", [id]); }
  destroy() { return this.ask("destroy", []); }
}

export default {
  fetch: (request, env) => handle(request, {
    token: env.BRIDGE_AUTH_TOKEN,
    sandbox: (id) => new Sandbox(env.EXECUTOR, id),
    leases: leaseIndex(env.LEASES),
  }),
};
