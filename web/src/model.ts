// What the API answers with, as far as the page looks at it.

export interface Company {
	id: string;
	name: string;
	status: string;
	issuePrefix: string;
	/** Where work is done that names no environment; null: nowhere. */
	defaultEnvironmentId: string | null;
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
	/** Whether what runs there is kept apart from the daemon's machine, and the same in words. */
	isolated: boolean;
	isolation: string;
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
	issueIdentifier?: string | null;
	issueTitle?: string | null;
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

export interface RunTimeline {
	queuedAt: string | null;
	startedAt: string | null;
	leasedAt: string | null;
	stagedAt: string | null;
	spawnedAt: string | null;
	firstOutputAt: string | null;
	exitedAt: string | null;
	restoredAt: string | null;
	finishedAt: string | null;
	releasedAt: string | null;
}

/** One run, whole. */
export interface RunDetail extends Run {
	step: string;
	waiting: { reason: string; since: string; nextTryAt: string; failures: number } | null;
	taskKey: string | null;
	environmentId: string | null;
	leaseId: string | null;
	signal: string | null;
	usageJson: JsonObject | null;
	resultJson: JsonObject | null;
	contextSnapshot: JsonObject | null;
	retryOfRunId: string | null;
	scheduledRetryAt: string | null;
	adapterType?: string;
	/** What to do about its error. */
	advice?: string;
	logBytes: number | null;
	/** Output is missing; `error` or the log says why. */
	incomplete: boolean;
	timeline: RunTimeline;
	outputSilence?: { level: string; silenceAgeMs: number | null };
}

export interface RunEvent {
	id: string;
	seq: number;
	eventType: string;
	level: string | null;
	message: string | null;
	payload: JsonObject | null;
	createdAt: string;
}

export interface Agent {
	id: string;
	name: string;
	urlKey: string;
	role: string;
	title?: string | null;
	status: string;
	adapterType: string;
	adapterConfig?: JsonObject;
	defaultEnvironmentId: string | null;
	pauseReason?: string | null;
	lastHeartbeatAt?: string | null;
	createdAt?: string;
}

export interface Issue {
	id: string;
	identifier: string;
	title: string;
	description: string | null;
	status: string;
	priority: string;
	assigneeAgentId: string | null;
	assigneeUserId: string | null;
	executionRunId: string | null;
	createdAt: string;
	updatedAt: string;
}

export interface Comment {
	id: string;
	authorType: string;
	authorAgentId: string | null;
	authorUserId: string | null;
	createdByRunId: string | null;
	body: string;
	createdAt: string;
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

export interface PluginDriver {
	driverKey: string;
	displayName: string;
	description?: string;
	pluginKey: string;
	configSchema?: Schema;
}

export interface Capabilities {
	drivers: Record<string, string>;
	sandboxProviders: Record<string, Provider>;
	pluginDrivers: PluginDriver[];
	isolation: Record<string, { isolated: boolean; isolation: string }>;
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
	managedMode?: string;
	externalRef?: string | null;
	providerConfigId?: string | null;
	latestVersion?: number;
	description?: string | null;
	referenceCount?: number;
	lastResolvedAt?: string | null;
	lastRotatedAt?: string | null;
	createdAt?: string;
}

export interface SecretProvider {
	id: string;
	label: string;
	requiresExternalRef: boolean;
	supportsManagedValues: boolean;
	supportsExternalReferences: boolean;
	configured: boolean;
}

export interface Vault {
	id: string;
	provider: string;
	displayName: string;
	status: string;
	isDefault: boolean;
	config: JsonObject;
	healthStatus: string | null;
	healthCheckedAt: string | null;
	healthMessage: string | null;
}

export interface Plugin {
	id: string;
	pluginKey: string;
	packageName: string;
	version: string;
	packageVersion?: string | null;
	categories: string[];
	manifestJson: JsonObject;
	status: string;
	packagePath: string | null;
	lastError: string | null;
	installedAt: string;
	updatedAt: string;
	pendingUpgrade?: { version: string; packageVersion: string | null; addedCapabilities: string[] | null };
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
