// The kinds of environments that can be made: driver, provider, and the schema of what is to be said about one.
import type { Capabilities, Environment, Json, JsonObject, Schema } from "../model";
import { isObject } from "./schema";

export interface EnvironmentKind {
	/** "local", "ssh", "plugin", "sandbox:PROVIDER" */
	id: string;
	driver: string;
	title: string;
	description?: string;
	schema: Schema;
	/** Members of the configuration that follow from the kind. */
	fixed: JsonObject;
}

const LOCAL: Schema = {
	type: "object",
	properties: {
		env: { type: "object", title: "Variables", description: "For every command.", additionalProperties: { type: "string" } },
	},
};

// The key is one field here: the API has a member for a new value and one for a secret that exists.
const SSH: Schema = {
	type: "object",
	required: ["host", "username", "remoteWorkspacePath"],
	properties: {
		host: { type: "string", title: "Host", description: "Name or address." },
		port: { type: "integer", title: "Port", minimum: 1, maximum: 65535, default: 22 },
		username: { type: "string", title: "User name" },
		remoteWorkspacePath: { type: "string", title: "Workspace path", description: "An absolute path on the host, beneath which runs get their directories." },
		privateKey: { type: "string", format: "secret-ref", title: "Private key", lines: 6, description: "Without one, the keys of the daemon's user are tried." },
		knownHosts: { type: "string", title: "Known hosts", lines: 3, description: "Lines of a known_hosts file. Without them the key that the host shows first is remembered." },
		strictHostKeyChecking: { type: "boolean", title: "Refuse unknown host keys", default: true },
		useSshConfig: { type: "boolean", title: "Heed the ssh_config of the daemon's user", default: false },
		workspaceMode: { type: "string", title: "Directories", oneOf: [{ const: "per_run", title: "One for each run" }, { const: "in_place", title: "The workspace path itself, for all" }], default: "per_run", },
	},
};

export function kindsOf(capabilities: Capabilities): EnvironmentKind[] {
	const sandboxes = Object.entries(capabilities.sandboxProviders).map(([provider, p]) => ({
		id: `sandbox:${provider}`,
		driver: "sandbox",
		title: p.displayName,
		description: p.description,
		schema: p.configSchema ?? { type: "object", properties: {} },
		fixed: { provider },
	}));

	// What agents can work in first; what is for tests last.
	sandboxes.sort((a, b) => Number(capabilities.sandboxProviders[a.fixed.provider]?.status !== "supported")
		- Number(capabilities.sandboxProviders[b.fixed.provider]?.status !== "supported"));
	return [
		...sandboxes,
		{ id: "ssh", driver: "ssh", title: "SSH host", description: "A directory on another machine.", schema: SSH, fixed: {} },
		{ id: "local", driver: "local", title: "This machine", description: "Commands run as the daemon's user, without walls.", schema: LOCAL, fixed: {} },
	];
}

/** The kind of an environment that exists, also when its provider is gone. */
export function kindOfEnvironment(e: Environment, kinds: EnvironmentKind[]): EnvironmentKind {
	const provider = String(e.config.provider ?? "");
	const id = e.driver === "sandbox" ? `sandbox:${provider}` : e.driver;
	const properties = Object.fromEntries(Object.keys(e.config).filter((k) => k !== "provider").map((k) => [k, {}]));

	return kinds.find((k) => k.id === id) ?? {
		id,
		driver: e.driver,
		title: e.driver === "plugin" ? `Plugin driver ${String(e.config.driverKey ?? "")}` : provider || e.driver,
		schema: { type: "object", properties },
		fixed: provider ? { provider } : {},
	};
}

/** A configuration as the form has it, and back. */
export function toForm(kind: EnvironmentKind, config: JsonObject): JsonObject {
	const { privateKeySecretRef, ...rest } = config;

	if (kind.driver !== "ssh") return config;
	const id = isObject(privateKeySecretRef) ? (privateKeySecretRef.secretId as Json) : undefined;
	const form: JsonObject = Object.fromEntries(Object.entries(rest).filter(([, v]) => v !== null));

	if (id !== undefined) form.privateKey = id;
	return form;
}

const UUID = /^[0-9a-f-]{36}$/i;

export function fromForm(kind: EnvironmentKind, form: JsonObject): JsonObject {
	const config: JsonObject = { ...form, ...kind.fixed };
	const key = config.privateKey;

	if (kind.driver === "ssh" && typeof key === "string" && UUID.test(key)) {
		delete config.privateKey;
		config.privateKeySecretRef = { type: "secret_ref", secretId: key, version: "latest" };
	}
	return config;
}
