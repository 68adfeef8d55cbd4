// The lines of a log, as records bring them. Streams are mixed by the record: a line that a stream has not finished goes
// on where it is. A carriage return begins its line anew, as progress bars want it.
import { parseAnsi, PLAIN, withoutAnsi, type Style } from "./ansi";

export type Stream = "stdout" | "stderr" | "system";

export interface Line {
	text: string;
	stream: Stream;
	/** The style it begins with. */
	style: Style;
	/** Of the record that began it. */
	ts: string;
}

export interface LogRecord {
	ts: string;
	stream: Stream;
	chunk: string;
}

interface Open {
	line: Line;
	/** Where it is among all. */
	at: number;
	/** What came so far, as it came. */
	raw: string;
}

const LINE_MAX = 100_000; // what is longer goes on in the next line

function shown(text: string): string {
	const cut = text.endsWith("\r") ? text.slice(0, -1) : text;

	return cut.slice(cut.lastIndexOf("\r") + 1).replaceAll("\t", "        ");
}

export class Lines {
	readonly all: Line[] = [];
	private open = new Map<Stream, Open>();
	private carried = new Map<Stream, Style>();

	/** Records as they lie in the file, one in a line; what is none is skipped. */
	addRecords(content: string): void {
		for (const text of content.split("\n")) {
			if (!text) continue;
			try {
				this.add(JSON.parse(text) as LogRecord);
			} catch {
				// Not a record: a daemon of another version wrote it.
			}
		}
	}

	add(record: LogRecord): void {
		if (typeof record.chunk !== "string") return;
		const parts = record.chunk.split("\n");

		parts.forEach((part, i) => {
			if (part !== "") this.extend(record, part);
			if (i < parts.length - 1) this.finish(record.stream);
		});
		// The daemon's own records are whole lines, with or without their end.
		if (record.stream === "system" && this.open.has("system")) this.finish("system");
	}

	/** Lines before this one do not change any more. */
	get settled(): number {
		return Math.min(this.all.length, ...[...this.open.values()].map((o) => o.at));
	}

	private extend(record: LogRecord, part: string): void {
		const { stream } = record;
		let open = this.open.get(stream);

		if (!open) {
			open = { line: { text: "", stream, style: this.carried.get(stream) ?? PLAIN, ts: record.ts }, at: this.all.length, raw: "" };
			this.open.set(stream, open);
			this.all.push(open.line);
		}
		open.raw += part;
		open.line.text = shown(open.raw);
		if (open.raw.length > LINE_MAX) this.finish(stream);
	}

	private finish(stream: Stream): void {
		const line = this.open.get(stream)?.line;

		if (!line) {
			this.all.push({ text: "", stream, style: PLAIN, ts: "" });
			return;
		}
		if (line.text.includes("\x1b")) this.carried.set(stream, parseAnsi(line.text, line.style).end);
		this.open.delete(stream);
	}

	/** All of it, without colours. */
	text(): string {
		return this.all.map((l) => withoutAnsi(l.text)).join("\n") + "\n";
	}
}

/* Finding */

export interface Match {
	line: number;
	/** In the text without colours. */
	start: number;
	end: number;
}

const MATCHES_MAX = 20_000;

/** Matches in the lines from `from` on. Upper and lower case are the same. */
export function findIn(lines: Line[], query: string, from = 0, found: Match[] = []): Match[] {
	const wanted = query.toLowerCase();

	if (!wanted) return found;
	for (let i = from; i < lines.length && found.length < MATCHES_MAX; i++) {
		const text = withoutAnsi((lines[i] as Line).text).toLowerCase();

		for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length))
			found.push({ line: i, start: at, end: at + wanted.length });
	}
	return found;
}

/* Rows: lines as they are drawn. Without wrapping, a line is a row. */

export interface Row {
	line: number;
	/** Part of the text without colours. */
	from: number;
	to: number;
}

function isWide(code: number): boolean {
	return code >= 0x1100 && (code <= 0x115f || (code >= 0x2e80 && code <= 0xa4cf) || (code >= 0xac00 && code <= 0xd7a3) ||
		(code >= 0xf900 && code <= 0xfaff) || (code >= 0xfe30 && code <= 0xfe6f) || (code >= 0xff00 && code <= 0xff60) || code >= 0x1f300);
}

/** Where the rows of a line end, for a width in cells. */
function wrap(text: string, columns: number): number[] {
	if (text.length * 2 <= columns) return [text.length];
	const ends: number[] = [];
	let cells = 0;
	let at = 0;

	for (const c of text) {
		const width = isWide(c.codePointAt(0) ?? 0) ? 2 : 1;

		if (cells + width > columns && cells > 0) {
			ends.push(at);
			cells = 0;
		}
		cells += width;
		at += c.length;
	}
	ends.push(text.length);
	return ends;
}

/** The rows of all lines, kept up to date as lines come. */
export class Rows {
	private rows: Row[] = [];
	private settled = 0;
	private firstOf: number[] = [];

	constructor(
		private readonly lines: Lines,
		/** null: lines are not wrapped. */
		readonly columns: number | null,
	) {}

	update(): void {
		if (this.columns === null) return;
		const from = this.settled;
		const { all } = this.lines;

		this.rows.length = this.firstOf[from] ?? this.rows.length;
		this.firstOf.length = from;
		for (let i = from; i < all.length; i++) {
			let start = 0;

			this.firstOf.push(this.rows.length);
			for (const end of wrap(withoutAnsi((all[i] as Line).text), this.columns)) {
				this.rows.push({ line: i, from: start, to: end });
				start = end;
			}
		}
		this.settled = this.lines.settled;
	}

	get length(): number {
		return this.columns === null ? this.lines.all.length : this.rows.length;
	}

	at(i: number): Row {
		return this.columns === null ? { line: i, from: 0, to: Infinity } : (this.rows[i] as Row);
	}

	/** The row in which something of a line stands. */
	find(line: number, at: number): number {
		if (this.columns === null) return line;
		let row = this.firstOf[line] ?? 0;

		while (this.rows[row + 1]?.line === line && at >= (this.rows[row] as Row).to) row++;
		return row;
	}
}
