// The Worker as it is deployed: routes and rules are in bridge.js, the sandboxes are @cloudflare/sandbox's.
import { getSandbox, Sandbox } from "@cloudflare/sandbox";
import { handle } from "./bridge.js";
import { LeaseIndex, leaseIndex } from "./leases.js";

export { LeaseIndex, Sandbox };

export default {
  fetch(request, env) {
    return handle(request, {
      token: env.BRIDGE_AUTH_TOKEN,
      sandbox: (id, options) => getSandbox(env.SANDBOX, id, options),
      leases: leaseIndex(env.LEASES),
    });
  },
};
