// Calls to the daemon. A call that fails throws an ApiError with the server's own text; a daemon that cannot be
// reached is an ApiError with status 0. A 401 ends the session, and the page asks for a key.
import { createStore } from "./store";

export interface Issue {
	path?: (string | number)[] | string;
	message?: string;
}

export class ApiError extends Error {
	constructor(
		readonly status: number,
		text: string,
		readonly details?: unknown,
	) {
		super(text);
	}

	/** Not reached, as opposed to refused. */
	get unreachable(): boolean {
		return this.status === 0;
	}
}

export interface Session {
	token: string | null;
	/** Set when a key is needed: why. */
	needsKey: string | null;
}

const STORED = "berth.key";

export const session = createStore<Session>({ token: sessionStorage.getItem(STORED), needsKey: null });

export function signIn(token: string): void {
	sessionStorage.setItem(STORED, token);
	session.set({ token, needsKey: null });
}

export function signOut(why = "You have signed out."): void {
	sessionStorage.removeItem(STORED);
	session.set({ token: null, needsKey: why });
}

export function authHeaders(): Record<string, string> {
	const { token } = session.get();

	return token ? { Authorization: `Bearer ${token}` } : {};
}

/** The text and details of an answer that is no success. */
export async function readError(answer: Response): Promise<ApiError> {
	const text = await answer.text();

	if (answer.status === 401) signOut("The key is not valid any more: it has expired or was revoked.");
	try {
		const body = JSON.parse(text) as { error?: string; details?: unknown };

		return new ApiError(answer.status, body.error ?? text, body.details);
	} catch {
		return new ApiError(answer.status, text || `The server answered ${answer.status}.`);
	}
}

export interface CallOptions {
	signal?: AbortSignal;
}

/** One call; the answer as it came. `path` begins behind /api. */
export async function request(method: string, path: string, body?: unknown, options: CallOptions = {}): Promise<Response> {
	const headers = authHeaders();
	let answer: Response;

	if (body !== undefined) headers["Content-Type"] = "application/json";
	try {
		answer = await fetch(`/api${path}`, {
			method,
			headers,
			body: body === undefined ? undefined : JSON.stringify(body),
			cache: "no-cache",
			credentials: "omit",
			signal: options.signal,
		});
	} catch (e) {
		if (e instanceof DOMException && e.name === "AbortError") throw e;
		throw new ApiError(0, "The daemon cannot be reached.");
	}
	if (!answer.ok) throw await readError(answer);
	return answer;
}

async function json<T>(method: string, path: string, body?: unknown, options?: CallOptions): Promise<T> {
	const answer = await request(method, path, body, options);
	const text = await answer.text();

	return (text ? JSON.parse(text) : null) as T;
}

export const api = {
	get: <T>(path: string, options?: CallOptions) => json<T>("GET", path, undefined, options),
	post: <T>(path: string, body: unknown = {}, options?: CallOptions) => json<T>("POST", path, body, options),
	put: <T>(path: string, body: unknown) => json<T>("PUT", path, body),
	patch: <T>(path: string, body: unknown) => json<T>("PATCH", path, body),
	delete: <T>(path: string) => json<T>("DELETE", path),
};

/** What to show of anything that was thrown. */
export function errorText(e: unknown): string {
	return e instanceof Error ? e.message : String(e);
}

/** Errors that name a field: dotted path -> text. In a 400 they are about the body, in a 422 about its `config`. */
export function fieldErrors(e: unknown): Record<string, string> {
	const found: Record<string, string> = {};

	if (!(e instanceof ApiError) || !e.details) return found;
	const details = e.details as { issues?: unknown };
	const issues = Array.isArray(e.details) ? e.details : Array.isArray(details.issues) ? details.issues : [];

	for (const issue of issues as Issue[]) {
		const path = [Array.isArray(e.details) ? [] : ["config"], issue.path ?? []].flat(2).join(".");

		if (issue.message && !(path in found)) found[path] = issue.message;
	}
	return found;
}
