// The shell behind a terminal: an execution with a pseudo-terminal. What is typed goes in pieces with their offset, so that
// one whose answer was lost can be sent again; what it prints comes as events, and goes on where it was cut off.
import { api, ApiError, authHeaders, readError, request } from "../api";
import { eventsOf } from "../event-stream";

const SHELL = 'for s in "$SHELL" /bin/bash /bin/sh; do [ -n "$s" ] && [ -x "$s" ] && exec "$s" -l; done';
const RETRY_MS = 700;

export interface Size {
	columns: number;
	rows: number;
}

interface Exit {
	exitCode: number | null;
	signal: string | null;
	status: string;
	reason?: string;
}

function wait(ms: number): Promise<void> {
	return new Promise((done) => setTimeout(done, ms));
}

export class Shell {
	execId = "";
	private typed: Uint8Array[] = [];
	private offset = 0;
	private sending = false;
	private over = false;
	private wanted: Size | null = null;
	private readonly cut = new AbortController();
	private readonly encoder = new TextEncoder();

	constructor(private readonly leaseId: string) {}

	private get path(): string {
		return `/environment-leases/${this.leaseId}/executions/${this.execId}`;
	}

	/** A new shell, or the one that is named and still there. */
	async open(execId: string | null, size: Size): Promise<void> {
		if (execId && (await this.attach(execId))) {
			this.resize(size.columns, size.rows);
			return;
		}
		const started = await api.post<{ execId: string }>(`/environment-leases/${this.leaseId}/execute`, {
			command: "/bin/sh", args: ["-c", SHELL], env: { TERM: "xterm-256color" }, detach: true, tty: size,
		});

		this.execId = started.execId;
	}

	private async attach(execId: string): Promise<boolean> {
		this.execId = execId;
		try {
			const there = await api.get<{ status: string; stdinBytes?: number }>(this.path);

			this.offset = there.stdinBytes ?? -1;
			return there.status === "running";
		} catch (e) {
			if (e instanceof ApiError && e.status === 404) return false;
			throw e;
		}
	}

	type(data: string): void {
		if (this.over) return;
		this.typed.push(this.encoder.encode(data));
		void this.send();
	}

	private async send(): Promise<void> {
		if (this.sending || !this.execId) return;
		this.sending = true;
		while (this.typed.length > 0 && !this.over) {
			const piece = new Uint8Array(await new Blob(this.typed.splice(0) as BlobPart[]).arrayBuffer());

			while (!this.over) {
				try {
					await request("POST", `${this.path}/stdin${this.offset < 0 ? "" : `?offset=${this.offset}`}`, undefined, { raw: piece, signal: this.cut.signal });
					break;
				} catch (e) {
					if (!(e instanceof ApiError) || !e.unreachable) {
						this.sending = false;
						return; // it has ended; the events say how
					}
					await wait(RETRY_MS);
				}
			}
			if (this.offset >= 0) this.offset += piece.length;
		}
		this.sending = false;
	}

	resize(columns: number, rows: number): void {
		const asked = this.wanted !== null;

		this.wanted = { columns, rows };
		if (asked || !this.execId || this.over) return;
		// Windows are resized in many steps; the last counts.
		setTimeout(() => {
			const size = this.wanted;

			this.wanted = null;
			if (!this.over) api.post(`${this.path}/resize`, size).catch(() => {});
		}, 100);
	}

	/** Until it has ended: how. */
	async follow(write: (data: string | Uint8Array) => void): Promise<string> {
		let last = "";

		while (!this.over) {
			const exit = await this.read(last, write, (id) => {
				last = id;
			});

			if (exit) {
				this.over = true;
				return exit.reason ?? (exit.signal ? `The shell was ended by ${exit.signal}.` : `The shell has ended, exit ${exit.exitCode ?? "unknown"}.`);
			}
			if (!this.over) await wait(RETRY_MS);
		}
		return "";
	}

	private async read(last: string, write: (data: string | Uint8Array) => void, seen: (id: string) => void): Promise<Exit | null> {
		let answer: Response;

		try {
			answer = await fetch(`/api${this.path}/events`, {
				headers: { ...authHeaders(), ...(last ? { "Last-Event-ID": last } : {}) }, cache: "no-store", credentials: "omit", signal: this.cut.signal,
			});
		} catch {
			return null;
		}
		if (!answer.ok || !answer.body) throw await readError(answer);
		for await (const event of eventsOf(answer.body)) {
			if (!event.data) continue;
			const body = JSON.parse(event.data) as { data?: string; encoding?: string } & Exit;

			if (event.name === "exit") return body;
			if (body.data !== undefined) write(body.encoding === "base64" ? Uint8Array.from(atob(body.data), (c) => c.charCodeAt(0)) : body.data);
			if (event.id) seen(event.id);
		}
		return null;
	}

	/** Nobody looks any more: the shell gets what it gets when a terminal is closed. */
	close(): void {
		if (this.execId && !this.over) api.post(`${this.path}/signal`, { signal: "SIGHUP" }).catch(() => {});
		this.over = true;
		this.cut.abort();
	}
}
