// What keeps the page up to date.
//
// Views ask for data with useQuery(path, topics). Queries are loaded when they are first drawn, and again when
// something happens that their topics name: an event of the company's stream (/api/companies/:id/events), or an
// action of our own. When the stream cannot be had, everything that is on the screen is asked for again every two
// seconds. A stream that breaks is opened again behind the last event that was seen (Last-Event-ID).
import { useEffect, useRef, useState } from "preact/hooks";
import { api, ApiError, authHeaders, readError, session } from "./api";
import { eventsOf } from "./event-stream";
import { createStore } from "./store";

export type Topic = "companies" | "environments" | "leases" | "runs" | "agents" | "issues" | "projects" | "secrets" | "plugins"
	| "activity" | "leaks";

export interface LiveEvent {
	id: number;
	companyId: string;
	type: string;
	createdAt: string;
	payload: Record<string, unknown>;
}

export interface Connection {
	/** "live": by events. "polling": reached, but without a stream. "lost": not reached. */
	state: "connecting" | "live" | "polling" | "lost";
	since: number;
}

const POLL_MS = 2000;
const RETRY_MS = [300, 1000, 2000, 5000];
const SILENCE_MS = 75_000; // a comment comes every 30 s
const GATHER_MS = 150;

export const connection = createStore<Connection>({ state: "connecting", since: Date.now() });

function connected(state: Connection["state"]): void {
	const before = connection.get().state;

	if (before === state) return;
	connection.set({ state, since: Date.now() });
	// What happened before the stream was there, or while the daemon was not reached, is not known.
	if (before === "lost" || state === "live") refresh();
}

/* Queries */

interface Query {
	topics: Topic[];
	load(): void;
}

const queries = new Set<Query>();
const listeners = new Set<(e: LiveEvent) => void>();

/** Load again what names one of these topics; everything without topics. */
export function refresh(topics?: Topic[]): void {
	for (const q of [...queries])
		if (!topics || q.topics.some((t) => topics.includes(t))) q.load();
}

let gathered: Set<Topic> | null = null;

function refreshSoon(topics: Topic[]): void {
	if (gathered) {
		for (const t of topics) gathered.add(t);
		return;
	}
	gathered = new Set(topics);
	setTimeout(() => {
		const now = [...(gathered ?? [])];

		gathered = null;
		refresh(now);
	}, GATHER_MS);
}

/** Events as they come, for views that follow one thing (a run's log). */
export function onLive(listener: (e: LiveEvent) => void): () => void {
	listeners.add(listener);
	return () => listeners.delete(listener);
}

export interface Loaded<T> {
	data: T | undefined;
	error: ApiError | undefined;
	/** Nothing to show yet. */
	loading: boolean;
	reload(): void;
}

const kept = new Map<string, unknown>(); // last answers, so that going back shows something at once
const KEPT_MAX = 60;

function keep(path: string, data: unknown): void {
	kept.delete(path);
	kept.set(path, data);
	if (kept.size > KEPT_MAX) kept.delete(kept.keys().next().value as string);
}

export function forgetAll(): void {
	kept.clear();
}

/** `path` null: nothing is asked for. `everyMs`: for what changes without an event. */
export function useQuery<T>(path: string | null, topics: Topic[] = [], everyMs = 0): Loaded<T> {
	const [, redraw] = useState(0);
	const state = useRef<{ path: string | null; data?: T; error?: ApiError; text?: string }>({ path: null });
	const reload = useRef<() => void>(() => {});

	if (state.current.path !== path)
		state.current = { path, data: path === null ? undefined : (kept.get(path) as T | undefined) };

	useEffect(() => {
		if (path === null) return;
		const own = state.current;
		let running: AbortController | null = null;
		let again = false;
		let stopped = false;

		async function load(): Promise<void> {
			if (running) {
				again = true; // what is under way may be older than what is asked for
				return;
			}
			running = new AbortController();
			try {
				own.data = await api.get<T>(path as string, { signal: running.signal });
				own.error = undefined;
				keep(path as string, own.data);
				reached();
			} catch (e) {
				if (stopped) return;
				if (e instanceof ApiError) {
					if (e.unreachable) unreachable();
					else own.error = e;
				} else {
					own.error = new ApiError(-1, String(e));
				}
			}
			running = null;
			if (stopped) return;
			redraw((n) => n + 1);
			if (again) {
				again = false;
				void load();
			}
		}

		const query: Query = { topics, load: () => void load() };

		queries.add(query);
		reload.current = query.load;
		query.load();
		return () => {
			stopped = true;
			queries.delete(query);
			running?.abort();
		};
		// Topics are constants of the place that asks.
	}, [path]);

	useEffect(() => {
		if (everyMs === 0 || path === null) return;
		const timer = setInterval(() => {
			if (streaming && !document.hidden) reload.current();
		}, everyMs);

		return () => clearInterval(timer);
	}, [path, everyMs]);

	const { data, error } = state.current;

	return { data, error, loading: data === undefined && !error && path !== null, reload: () => reload.current() };
}

/* The connection */

function reached(): void {
	if (connection.get().state === "lost" && !streaming) connected("polling");
}

function unreachable(): void {
	connected("lost");
}

let streaming = false;
let stop: (() => void) | null = null;

/** Follow a company; null: nobody. A tab that nobody sees gives its connection to others: a browser has six for us. */
export function follow(companyId: string | null): void {
	stop?.();
	stop = null;
	if (!companyId) return;
	const poll = setInterval(() => {
		if (!streaming && !document.hidden) tick();
	}, POLL_MS);
	const last = { id: "" };
	let reading: AbortController | null = null;

	function look() {
		reading?.abort();
		reading = null;
		streaming = false;
		if (document.hidden) return;
		reading = new AbortController();
		void stream(companyId as string, last, reading.signal);
	}

	document.addEventListener("visibilitychange", look);
	stop = () => {
		document.removeEventListener("visibilitychange", look);
		reading?.abort();
		clearInterval(poll);
		streaming = false;
	};
	look();
}

// One cheap question while the daemon is away, everything on the screen otherwise.
function tick(): void {
	if (connection.get().state !== "lost") {
		refresh();
		return;
	}
	api.get("/health").then(reached, (e: unknown) => {
		if (e instanceof ApiError && !e.unreachable) reached();
	});
}

async function stream(companyId: string, last: { id: string }, signal: AbortSignal): Promise<void> {
	let failures = 0;

	while (!signal.aborted && session.get().needsKey === null) {
		try {
			await read(companyId, last, signal, () => {
				failures = 0;
			});
			if (signal.aborted) return;
			streaming = false;
			unreachable();
		} catch (e) {
			if (signal.aborted) return;
			streaming = false;
			if (e instanceof ApiError && e.status === 401) return;
			if (e instanceof ApiError && (e.status === 403 || e.status === 404)) {
				connected("polling"); // there is no stream for us; the timer asks
				return;
			}
			if (e instanceof ApiError && e.unreachable) unreachable();
		}
		await pause(RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)] as number, signal);
	}
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
	return new Promise((done) => {
		const timer = setTimeout(done, ms);

		signal.addEventListener("abort", () => {
			clearTimeout(timer);
			done();
		});
	});
}

async function read(companyId: string, last: { id: string }, signal: AbortSignal, opened: () => void): Promise<void> {
	const headers: Record<string, string> = { ...authHeaders(), Accept: "text/event-stream" };
	const cut = new AbortController();
	let silence = setTimeout(() => cut.abort(), SILENCE_MS);
	let answer: Response;

	if (last.id) headers["Last-Event-ID"] = last.id;
	try {
		answer = await fetch(`/api/companies/${companyId}/events`, {
			headers,
			cache: "no-store",
			credentials: "omit",
			signal: AbortSignal.any([signal, cut.signal]),
		});
	} catch {
		clearTimeout(silence);
		throw new ApiError(0, "The daemon cannot be reached.");
	}
	if (!answer.ok || !answer.body) {
		clearTimeout(silence);
		throw await readError(answer);
	}
	opened();
	streaming = true;
	connected("live");

	try {
		const heard = () => {
			clearTimeout(silence);
			silence = setTimeout(() => cut.abort(), SILENCE_MS);
		};

		for await (const event of eventsOf(answer.body, heard)) {
			if (event.id) last.id = event.id;
			if (event.name === "reset" || event.name === "missed") refresh();
			else if (event.data) deliver(event.data);
		}
	} finally {
		clearTimeout(silence);
	}
}

function deliver(data: string): void {
	let event: LiveEvent;

	try {
		event = JSON.parse(data) as LiveEvent;
	} catch {
		return;
	}
	for (const listener of [...listeners]) listener(event);
	const topics = topicsOf(event);

	if (topics.length) refreshSoon(topics);
}

const ENTITIES: Record<string, Topic[]> = {
	environment: ["environments", "leases", "leaks"],
	environment_lease: ["leases", "leaks"],
	agent: ["agents"],
	issue: ["issues"],
	project: ["projects"],
	secret: ["secrets"],
	company_secret: ["secrets"],
	secret_provider_config: ["secrets"],
	plugin: ["plugins", "environments"],
	company: ["companies"],
	heartbeat_run: ["runs"],
};

const EVERYTHING: Topic[] = ["companies", "environments", "leases", "runs", "agents", "issues", "projects", "secrets", "plugins",
	"leaks"];

function topicsOf(e: LiveEvent): Topic[] {
	if (e.type === "heartbeat.run.log" || e.type === "heartbeat.run.event") return [];
	if (e.type.startsWith("heartbeat.run.")) return ["runs", "agents", "issues", "leases"];
	if (e.type.startsWith("agent.")) return ["agents"];
	if (e.type.startsWith("plugin.")) return ["plugins"];
	if (e.type === "activity.logged")
		return [...(ENTITIES[String(e.payload.entityType)] ?? EVERYTHING), "activity"];
	return [];
}
