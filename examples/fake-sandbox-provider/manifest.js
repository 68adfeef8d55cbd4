// What the plugin says about itself. The host evaluates this file alone, before it runs anything else.
export default {
  id: "paperclip.fake-sandbox-provider",
  apiVersion: 1,
  version: "0.1.0",
  displayName: "Fake Sandbox Provider",
  description: "Sandboxes that are directories of this machine, for tests and as a pattern for providers.",
  author: "Berth",
  categories: ["automation"],
  capabilities: ["environment.drivers.register"],
  entrypoints: { worker: "./worker.js" },
  environmentDrivers: [
    {
      driverKey: "fake-plugin",
      kind: "sandbox_provider",
      displayName: "Fake Sandbox Provider",
      description: "Runs commands in a directory of its own, without any isolation.",
      configSchema: {
        type: "object",
        properties: {
          image: { type: "string", description: "A name that is only passed through.", default: "fake:latest" },
          timeoutMs: { type: "number", description: "How long a command may run.", default: 300000 },
          reuseLease: { type: "boolean", description: "Keep the directory for the next run.", default: false },
        },
      },
    },
  ],
};
