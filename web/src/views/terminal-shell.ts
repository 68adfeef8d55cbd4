// The shell behind a terminal: a WebSocket (docs/api.md). The daemon hangs the shell up when the socket goes, so it ends with
// the tab. A daemon that restarts leaves it alone: then the socket is opened again, and what is printed goes on.
import { api, ApiError, session } from "../api";

const RETRY_MS = 700;
const PIECE = 32 * 1024; // of what is pasted; messages are bounded

export interface Size {
	columns: number;
	rows: number;
}

export interface Output {
	write(data: string): void;
}

interface Message {
	type: "ready" | "output" | "closed";
	execId?: string;
	data?: string;
	nextOffset?: number;
	reason?: string;
	exitCode?: number;
	signal?: string | null;
}

function wait(ms: number): Promise<void> {
	return new Promise((done) => setTimeout(done, ms));
}

function sayEnd(end: Message): string {
	if (end.reason !== "exited") return end.reason === "lost" ? "The shell is lost: what it ran in is gone." : "The shell could not be started.";
	return end.signal ? `The shell was ended by ${end.signal}.` : `The shell has ended, exit ${end.exitCode ?? "unknown"}.`;
}

export class Shell {
	private execId = "";
	private offset = 0; // after what is on the screen
	private socket: WebSocket | null = null;
	private ready = false;
	private over = false;
	private typed = "";
	private wanted: Size | null = null;

	constructor(
		private readonly leaseId: string,
		private readonly output: Output,
		private readonly opened: () => void,
	) {}

	/** Until it has ended: how. */
	async run(size: () => Size): Promise<string> {
		let refusals = 0;

		while (!this.over) {
			const end = await this.connect(size);

			if (end) {
				this.over = true;
				return sayEnd(end);
			}
			if (this.over) break;
			refusals = this.ready ? 0 : refusals + 1;
			this.ready = false;
			if (refusals && (await this.reachable()) && (!this.execId || refusals > 3)) throw await this.why();
			await wait(RETRY_MS);
		}
		return "";
	}

	/** One connection; its last word, or null when it broke off. */
	private connect(size: () => Size): Promise<Message | null> {
		const { columns, rows } = size();
		const query = new URLSearchParams({ cols: String(columns), rows: String(rows) });
		const { token } = session.get();
		const address = new URL(`/api/environment-leases/${this.leaseId}/terminal/ws`, location.href);

		if (this.execId) {
			query.set("execId", this.execId);
			query.set("offset", String(this.offset));
		}
		if (token) query.set("token", token);
		address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
		address.search = query.toString();
		return new Promise((done) => {
			const socket = new WebSocket(address);
			let end: Message | null = null;

			this.socket = socket;
			socket.onmessage = (e: MessageEvent<string>) => {
				const message = JSON.parse(e.data) as Message;

				if (message.type === "ready") this.begin(message.execId ?? "", size());
				else if (message.type === "output") this.print(message);
				else end = message;
			};
			socket.onclose = () => {
				this.socket = null;
				done(end);
			};
		});
	}

	private begin(execId: string, size: Size): void {
		this.execId = execId;
		this.ready = true;
		this.resize(size.columns, size.rows); // it may have changed since it was asked for
		this.opened();
		this.send();
	}

	private print(message: Message): void {
		this.output.write(message.data ?? "");
		this.offset = message.nextOffset ?? this.offset;
	}

	/** A socket that is refused does not say why; what was asked for does, when asked for otherwise. */
	private async why(): Promise<Error> {
		try {
			await api.post(`/environment-leases/${this.leaseId}/execute`, { command: "true" });
		} catch (e) {
			if (e instanceof Error) return e;
		}
		return new Error("A terminal cannot be opened here.");
	}

	private async reachable(): Promise<boolean> {
		try {
			await api.get(`/environment-leases/${this.leaseId}`);
		} catch (e) {
			if (!(e instanceof ApiError) || !e.unreachable) throw e;
			return false;
		}
		return true;
	}

	private say(message: object): void {
		if (this.ready && this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
	}

	type(data: string): void {
		this.typed += data;
		this.send();
	}

	private send(): void {
		while (this.ready && this.typed && this.socket?.readyState === WebSocket.OPEN) {
			const end = /[\uD800-\uDBFF]/.test(this.typed.charAt(PIECE - 1)) ? PIECE - 1 : PIECE;

			this.say({ type: "input", data: this.typed.slice(0, end) });
			this.typed = this.typed.slice(end);
		}
	}

	resize(columns: number, rows: number): void {
		const asked = this.wanted !== null;

		this.wanted = { columns, rows };
		if (asked) return;
		// Windows are resized in many steps; the last counts.
		setTimeout(() => {
			const size = this.wanted;

			this.wanted = null;
			if (size) this.say({ type: "resize", cols: size.columns, rows: size.rows });
		}, 100);
	}

	/** Nobody looks any more: the shell gets what it gets when a terminal is closed. */
	close(): void {
		this.over = true;
		this.say({ type: "close" });
		this.socket?.close();
	}
}
