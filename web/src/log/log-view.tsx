// A log of any length: only the rows that can be seen are in the document.
import { Component, type ComponentChildren, type RefObject } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { count } from "../format";
import { onBackground, parseAnsi, readable, type Piece, type Style } from "./ansi";
import { findIn, Rows, type Line, type Match, type Row } from "./lines";
import type { LogState } from "./source";

const ROW_PX = 18;
const PAD_PX = 8;
const BEYOND = 12; // rows above and below what is seen
const REUSED = 512; // elements of rows that are left are used for those that come; more than are ever seen
const HEIGHT_MAX = 8_000_000; // browsers cannot scroll through more than about 16 million pixels

function cssOf(style: Style): Record<string, string> | undefined {
	if (style.fg === undefined && style.bg === undefined && !style.inverse) return undefined;
	const fg = style.inverse ? style.bg : style.fg;
	const bg = style.inverse ? (style.fg ?? "#808080") : style.bg;

	if (bg !== undefined) return onBackground(bg);
	return fg === undefined ? undefined : { color: readable(fg) };
}

function classOf(style: Style): string | undefined {
	const names = [style.bold && "bold", style.dim && "faint", style.italic && "italic", style.underline && "under", style.strike && "strike"];

	return names.filter(Boolean).join(" ") || undefined;
}

interface Mark {
	start: number;
	end: number;
	now: boolean;
}

/** A piece of text, with what was found in it. `at` is where it begins in its line. */
function Text(props: { text: string; at: number; marks: Mark[] }) {
	const parts: ComponentChildren[] = [];
	let from = 0;

	for (const m of props.marks) {
		const start = Math.max(0, m.start - props.at);
		const end = Math.min(props.text.length, m.end - props.at);

		if (start >= end) continue;
		parts.push(props.text.slice(from, start), <mark class={m.now ? "now" : undefined}>{props.text.slice(start, end)}</mark>);
		from = end;
	}
	parts.push(props.text.slice(from));
	return <>{parts}</>;
}

function cut(pieces: Piece[], row: Row): { piece: Piece; at: number }[] {
	const parts: { piece: Piece; at: number }[] = [];
	let at = 0;

	for (const piece of pieces) {
		const start = Math.max(row.from, at);
		const end = Math.min(row.to, at + piece.text.length);

		if (start < end) parts.push({ piece: { text: piece.text.slice(start - at, end - at), style: piece.style }, at: start });
		at += piece.text.length;
	}
	return parts;
}

interface RowProps {
	line: Line;
	/** Of the line, which may grow. */
	text: string;
	row: Row;
	marks: Mark[];
}

const NO_MARKS: Mark[] = [];

/** Drawn again only when something of it has changed: scrolling by a row draws one row. */
class RowView extends Component<RowProps> {
	override shouldComponentUpdate(next: RowProps): boolean {
		const now = this.props;

		return now.line !== next.line || now.text !== next.text || now.row.from !== next.row.from || now.row.to !== next.row.to ||
			now.row.line !== next.row.line || now.marks.length > 0 || next.marks.length > 0;
	}

	override render({ line, text, row, marks }: RowProps) {
		return (
			<div class={`log-row ${line.stream}`}>
				<span class="log-number">{row.from === 0 ? row.line + 1 : ""}</span>
				<span class="log-text">
					{cut(parseAnsi(text, line.style).pieces, row).map(({ piece, at }) => {
						const css = cssOf(piece.style);
						const name = classOf(piece.style);
						const inner = marks.length > 0 ? <Text text={piece.text} at={at} marks={marks} /> : piece.text;

						return css || name ? <span class={name} style={css}>{inner}</span> : inner;
					})}
				</span>
			</div>
		);
	}
}

/* Scrolling */

interface Window {
	first: number;
	last: number;
	/** Where the first row is drawn. */
	top: number;
	height: number;
}

/** Which rows are seen. Beyond HEIGHT_MAX the scrollbar stands for parts of the log, not for pixels. */
function windowOf(rows: number, scroll: number, view: number): Window {
	const full = rows * ROW_PX + 2 * PAD_PX;
	const height = Math.min(full, HEIGHT_MAX);
	const part = height > view ? Math.min(1, scroll / (height - view)) : 0;
	const real = full > HEIGHT_MAX ? part * (full - view) : scroll;
	const first = Math.max(0, Math.min(rows - 1, Math.floor((real - PAD_PX) / ROW_PX) - BEYOND));
	const last = Math.min(rows, Math.ceil((real + view) / ROW_PX) + BEYOND);

	return { first, last, top: scroll - real + first * ROW_PX + PAD_PX, height };
}

/** How far to scroll for a row to be in the middle. */
function scrollFor(row: number, rows: number, view: number): number {
	const full = rows * ROW_PX + 2 * PAD_PX;
	const real = Math.max(0, Math.min(full - view, row * ROW_PX - view / 2));

	return full > HEIGHT_MAX ? (real / (full - view)) * (HEIGHT_MAX - view) : real;
}

/** How many characters fit beside each other, and how many rows above each other. */
function useSize(box: RefObject<HTMLDivElement | null>): { columns: number; view: number } {
	const [size, setSize] = useState({ columns: 80, view: 400 });

	useLayoutEffect(() => {
		const node = box.current;

		if (!node) return;
		const ruler = document.createElement("span");

		ruler.className = "log-text log-ruler";
		ruler.textContent = "0".repeat(50);
		const watcher = new ResizeObserver(() => {
			node.append(ruler);
			const cell = ruler.getBoundingClientRect().width / 50 || 7.5;

			ruler.remove();
			setSize({ columns: Math.max(20, Math.floor((node.clientWidth - 84) / cell)), view: node.clientHeight });
		});

		watcher.observe(node);
		return () => watcher.disconnect();
	}, []);
	return size;
}

/* Searching */

interface Search {
	query: string;
	setQuery: (q: string) => void;
	matches: Match[];
	at: number;
	move: (by: number) => void;
}

function useSearch(log: LogState): Search {
	const [query, setQuery] = useState("");
	const [at, setAt] = useState(0);
	const found = useRef<{ query: string; version: number; to: number; matches: Match[] }>({ query: "", version: 0, to: 0, matches: [] });

	const lines = log.lines.all;
	const f = found.current;

	if (f.query !== query) found.current = { query, version: log.version, to: log.lines.settled, matches: findIn(lines, query) };
	else if (query && log.version !== f.version) {
		f.matches = findIn(lines, query, f.to, f.matches.filter((m) => m.line < f.to));
		f.to = log.lines.settled;
		f.version = log.version;
	}
	const { matches } = found.current;

	return {
		query,
		setQuery: (q) => {
			setQuery(q);
			setAt(0);
		},
		matches,
		at: Math.min(at, Math.max(0, matches.length - 1)),
		move: (by) => setAt((n) => (matches.length ? (n + by + matches.length) % matches.length : 0)),
	};
}

function SearchBar(props: { search: Search; input: RefObject<HTMLInputElement | null> }) {
	const { query, setQuery, matches, at, move } = props.search;
	const said = query === "" ? "" : matches.length === 0 ? "not found" : `${(at + 1).toLocaleString("en")} of ${matches.length.toLocaleString("en")}`;

	return (
		<div class="log-search" role="search">
			<input ref={props.input} type="search" aria-label="Search the log" placeholder="Search" value={query} spellcheck={false}
				onInput={(e) => setQuery(e.currentTarget.value)}
				onKeyDown={(e) => {
					if (e.key !== "Enter") return;
					e.preventDefault();
					move(e.shiftKey ? -1 : 1);
				}} />
			<span class="dim" role="status">{said}</span>
			<button type="button" class="button small" aria-label="Previous match" disabled={matches.length === 0} onClick={() => move(-1)}>↑</button>
			<button type="button" class="button small" aria-label="Next match" disabled={matches.length === 0} onClick={() => move(1)}>↓</button>
		</div>
	);
}

function download(log: LogState, name: string): void {
	const link = document.createElement("a");

	link.href = URL.createObjectURL(new Blob([log.lines.text()], { type: "text/plain" }));
	link.download = name;
	link.click();
	setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/* All of it */

export interface LogViewProps {
	log: LogState;
	/** More may come. */
	live: boolean;
	fileName: string;
}

function marksOf(matches: Match[], first: number, last: number, now: Match | undefined): Map<number, Mark[]> {
	const marks = new Map<number, Mark[]>();
	let low = 0;
	let high = matches.length;

	while (low < high) {
		const middle = (low + high) >> 1;

		if ((matches[middle] as Match).line < first) low = middle + 1;
		else high = middle;
	}
	for (let m = matches[low]; m && m.line <= last; m = matches[++low]) {
		const list = marks.get(m.line) ?? [];

		list.push({ start: m.start, end: m.end, now: m === now });
		marks.set(m.line, list);
	}
	return marks;
}

export function LogView(props: LogViewProps) {
	const { log } = props;
	const box = useRef<HTMLDivElement>(null);
	const input = useRef<HTMLInputElement>(null);
	const [wrapped, setWrapped] = useState(() => matchMedia("(max-width: 760px)").matches);
	const [following, setFollowing] = useState(props.live);
	const [scroll, setScroll] = useState(0);
	const { columns, view } = useSize(box);
	const search = useSearch(log);
	const rows = useMemo(() => new Rows(log.lines, wrapped ? columns : null), [log.lines, wrapped, columns]);

	rows.update();
	const n = rows.length;
	const w = windowOf(n, scroll, view);
	const match = search.matches[search.at];

	// To the end, as long as it is followed; whoever scrolls away does not want to be pulled back.
	useLayoutEffect(() => {
		if (following && box.current) box.current.scrollTop = box.current.scrollHeight;
	}, [n, following, view]);
	useEffect(() => {
		if (!match || !box.current) return;
		setFollowing(false);
		box.current.scrollTop = scrollFor(rows.find(match.line, match.start), n, view);
	}, [match?.line, match?.start, search.query]);

	function onScroll(): void {
		const node = box.current as HTMLDivElement;
		const atEnd = node.scrollTop + node.clientHeight >= node.scrollHeight - 2;

		setScroll(node.scrollTop);
		if (!atEnd) setFollowing((f) => (f && node.scrollTop < scroll ? false : f));
	}

	const shown: Row[] = [];

	for (let i = w.first; i < w.last; i++) shown.push(rows.at(i));
	const marks = marksOf(search.matches, shown[0]?.line ?? 0, shown[shown.length - 1]?.line ?? 0, match);

	return (
		<div class="log"
			onKeyDown={(e) => {
				if ((e.ctrlKey || e.metaKey) && e.key === "f") {
					e.preventDefault();
					input.current?.focus();
				}
			}}>
			<div class="log-bar">
				<SearchBar search={search} input={input} />
				<label class="toggle"><input type="checkbox" checked={wrapped} onChange={(e) => setWrapped(e.currentTarget.checked)} />Wrap</label>
				<label class="toggle"><input type="checkbox" checked={following} onChange={(e) => setFollowing(e.currentTarget.checked)} />Follow</label>
				<button type="button" class="button small" disabled={n === 0} onClick={() => download(log, props.fileName)}>Download</button>
				<span class="dim log-count">{count(log.lines.all.length, "line")}{log.caughtUp ? "" : "…"}</span>
			</div>
			<div class="log-box" ref={box} tabIndex={0} role="region" aria-label="Log" onScroll={onScroll}>
				<div class="log-space" style={{ height: `${w.height}px` }}>
					<div class={`log-rows${wrapped ? " wrapped" : ""}`} style={{ transform: `translateY(${w.top}px)` }}>
						{shown.map((row, i) => {
							const line = log.lines.all[row.line] as Line;

							return <RowView key={(w.first + i) % REUSED} line={line} text={line.text} row={row} marks={marks.get(row.line) ?? NO_MARKS} />;
						})}
					</div>
				</div>
			</div>
		</div>
	);
}
