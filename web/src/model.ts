// What the API answers with, as far as the page looks at it.

export interface Company {
	id: string;
	name: string;
	status: string;
	issuePrefix: string;
}

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export interface Environment {
	id: string;
	companyId: string;
	name: string;
	description: string | null;
	driver: string;
	status: string;
	config: JsonObject;
	metadata: JsonObject | null;
	createdAt: string;
	updatedAt: string;
	configRedacted?: boolean;
}

export interface Lease {
	id: string;
	companyId: string;
	environmentId: string;
	executionWorkspaceId: string | null;
	issueId: string | null;
	heartbeatRunId: string | null;
	status: string;
	leasePolicy: string;
	provider: string | null;
	providerLeaseId: string | null;
	acquiredAt: string;
	lastUsedAt: string;
	expiresAt: string | null;
	releasedAt: string | null;
	failureReason: string | null;
	cleanupStatus: string | null;
	metadata: JsonObject | null;
}

export interface Run {
	id: string;
	companyId: string;
	agentId: string;
	agentName?: string;
	issueId?: string | null;
	invocationSource: string;
	triggerDetail: string | null;
	status: string;
	startedAt: string | null;
	finishedAt: string | null;
	error: string | null;
	errorCode?: string | null;
	exitCode: number | null;
	createdAt: string;
	updatedAt: string;
}

export interface Agent {
	id: string;
	name: string;
	urlKey: string;
	role: string;
	status: string;
	adapterType: string;
	defaultEnvironmentId: string | null;
}

/** The subset of JSON Schema that forms are made from. */
export interface Schema {
	type?: string | string[];
	title?: string;
	description?: string;
	default?: Json;
	enum?: Json[];
	const?: Json;
	oneOf?: Schema[];
	anyOf?: Schema[];
	format?: string;
	properties?: Record<string, Schema>;
	required?: string[];
	additionalProperties?: boolean | Schema;
	items?: Schema;
	minimum?: number;
	maximum?: number;
	exclusiveMinimum?: number;
	exclusiveMaximum?: number;
	minLength?: number;
	maxLength?: number;
	minItems?: number;
	maxItems?: number;
	pattern?: string;
	writeOnly?: boolean;
	readOnly?: boolean;
	/** Ours: a value of several lines. */
	lines?: number;
	examples?: Json[];
}

export interface Provider {
	status: string;
	displayName: string;
	description?: string;
	source: "builtin" | "plugin";
	pluginKey?: string;
	supportsRunExecution: boolean;
	supportsReusableLeases: boolean;
	configSchema?: Schema;
}

export interface Capabilities {
	drivers: Record<string, string>;
	sandboxProviders: Record<string, Provider>;
}

export interface LeakItem {
	placeId?: string;
	environmentId?: string;
	driver?: string;
	provider: string | null;
	providerLeaseId?: string | null;
	ownerTag?: string;
	state?: string;
	note?: string | null;
	nextStep: string;
}

export interface Leaks {
	checkedAt: string;
	total: number;
	unknown: LeakItem[];
	missing: LeakItem[];
	uncertain: LeakItem[];
	cleanupDue: LeakItem[];
	notListable: unknown[];
}

export interface Secret {
	id: string;
	name: string;
	key: string;
	status: string;
	provider?: string;
}

export interface Salvage {
	id: string;
	leaseId: string;
	environmentId: string | null;
	reason: string;
	localPath: string;
	changes: number;
	deletes: number;
	bytes: number;
	appliedAt: string | null;
	expiresAt: string | null;
	createdAt: string;
}
