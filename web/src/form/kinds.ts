// The kinds of environments that can be made: driver, provider, and the schema of what is to be said about one.
import type { Capabilities, Environment, Json, JsonObject, Schema } from "../model";
import { isObject } from "./schema";

export interface EnvironmentKind {
	/** "local", "ssh", "plugin:PLUGIN:DRIVER", "sandbox:PROVIDER" */
	id: string;
	driver: string;
	title: string;
	description?: string;
	/** How far it is kept apart from the daemon's machine; nothing of a kind that is gone. */
	isolation?: string;
	schema: Schema;
	/** Members of the configuration that follow from the kind. */
	fixed: JsonObject;
	/** Where in the body of a request the form's values are. */
	path: "config" | "config.driverConfig";
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

/** What a plugin's own driver is told is kept and handed on as it is: none of its fields is for a new secret. */
function inTheOpen(schema: Schema | undefined): Schema {
	const properties = Object.entries(schema?.properties ?? {}).map(([key, { format, ...p }]) => [key, format === "secret-ref"
		? { ...p, description: `${p.description ?? ""} Kept as it is written, for everybody who sees the environment.`.trim() }
		: { ...p, ...(format ? { format } : {}) }]);

	return { ...schema, type: "object", properties: Object.fromEntries(properties) as Record<string, Schema> };
}

export function kindsOf(capabilities: Capabilities): EnvironmentKind[] {
	const sandboxes = Object.entries(capabilities.sandboxProviders).map(([provider, p]) => ({
		id: `sandbox:${provider}`,
		driver: "sandbox",
		title: p.displayName,
		description: p.description,
		schema: p.configSchema ?? { type: "object", properties: {} },
		fixed: { provider },
		path: "config" as const,
	}));
	const plugins = capabilities.pluginDrivers.map((d) => ({
		id: `plugin:${d.pluginKey}:${d.driverKey}`,
		driver: "plugin",
		title: d.displayName,
		description: d.description,
		schema: inTheOpen(d.configSchema),
		fixed: { pluginKey: d.pluginKey, driverKey: d.driverKey },
		path: "config.driverConfig" as const,
	}));

	// What agents can work in first; what is for tests last.
	sandboxes.sort((a, b) => Number(capabilities.sandboxProviders[a.fixed.provider]?.status !== "supported")
		- Number(capabilities.sandboxProviders[b.fixed.provider]?.status !== "supported"));
	const kinds: EnvironmentKind[] = [
		...sandboxes,
		...plugins,
		{ id: "ssh", driver: "ssh", title: "SSH host", description: "A directory on another machine.", schema: SSH, fixed: {}, path: "config" },
		{ id: "local", driver: "local", title: "This machine", description: "Commands run as the daemon's user, without walls.", schema: LOCAL, fixed: {}, path: "config" },
	];

	return kinds.map((k) => ({ ...k, isolation: capabilities.isolation[k.driver]?.isolation }));
}

/** The kind of an environment that exists, also when its provider is gone. */
export function kindOfEnvironment(e: Environment, kinds: EnvironmentKind[]): EnvironmentKind {
	const provider = String(e.config.provider ?? "");
	const ofPlugin = e.driver === "plugin";
	const { pluginKey = "", driverKey = "" } = e.config;
	const id = ofPlugin ? `plugin:${String(pluginKey)}:${String(driverKey)}` : e.driver === "sandbox" ? `sandbox:${provider}` : e.driver;
	const config = ofPlugin && isObject(e.config.driverConfig) ? e.config.driverConfig : e.config;
	const properties = Object.fromEntries(Object.keys(config).filter((k) => k !== "provider").map((k) => [k, {}]));

	return kinds.find((k) => k.id === id) ?? {
		id,
		driver: e.driver,
		title: ofPlugin ? `Plugin driver ${String(driverKey)}` : provider || e.driver,
		schema: { type: "object", properties },
		fixed: ofPlugin ? { pluginKey, driverKey } : provider ? { provider } : {},
		path: ofPlugin ? "config.driverConfig" : "config",
	};
}

/** A configuration as the form has it, and back. */
export function toForm(kind: EnvironmentKind, config: JsonObject): JsonObject {
	const { privateKeySecretRef, ...rest } = config;

	if (kind.driver === "plugin") return isObject(config.driverConfig) ? config.driverConfig : {};
	if (kind.driver !== "ssh") return config;
	const id = isObject(privateKeySecretRef) ? (privateKeySecretRef.secretId as Json) : undefined;
	const form: JsonObject = Object.fromEntries(Object.entries(rest).filter(([, v]) => v !== null));

	if (id !== undefined) form.privateKey = id;
	return form;
}

const UUID = /^[0-9a-f-]{36}$/i;

export function fromForm(kind: EnvironmentKind, form: JsonObject): JsonObject {
	const config: JsonObject = kind.driver === "plugin" ? { ...kind.fixed, driverConfig: form } : { ...form, ...kind.fixed };
	const key = config.privateKey;

	if (kind.driver === "ssh" && typeof key === "string" && UUID.test(key)) {
		delete config.privateKey;
		config.privateKeySecretRef = { type: "secret_ref", secretId: key, version: "latest" };
	}
	return config;
}
