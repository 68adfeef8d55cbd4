// Where the lines of a run's log and the records of its transcript come from: pages by offset until there is nothing more,
// then whenever the event stream says that something was written, or every second where there is no stream.
import { useEffect, useRef, useState } from "preact/hooks";
import { api, ApiError, errorText } from "../api";
import { connection, onLive } from "../live";
import { Lines } from "./lines";
import { Turns, type TurnRecord } from "./turns";

interface Page {
	nextOffset?: number;
	eof?: boolean;
}

const PAGE_BYTES = 1 << 20;
const POLL_MS = 1000;
const SAFETY_MS = 5000; // an event may have been missed

export interface Followed {
	/** Grows with every change. */
	version: number;
	/** What there was when we came has been read. */
	caughtUp: boolean;
	/** Nothing will follow. */
	eof: boolean;
	error: string | undefined;
}

export interface LogState extends Followed {
	lines: Lines;
}

export interface TranscriptState extends Followed {
	turns: Turns;
}

const NOTHING: Followed = { version: 0, caughtUp: false, eof: false, error: undefined };

/** Follow `what` of a run; `take` puts a page into the state and says whether that changed it. */
function useFollowed<S extends Followed, P extends Page>(runId: string, live: boolean, what: string, first: () => S, take: (s: S, page: P) => boolean): S {
	const [, redraw] = useState(0);
	const state = useRef<S | null>(null);
	const kick = useRef<() => void>(() => {});

	state.current ??= first();
	useEffect(() => {
		const ended = new AbortController();
		const s = state.current as S;
		let offset = 0;
		let running = false;
		let again = false;

		async function page(): Promise<boolean> {
			const got = await api.get<P>(`/heartbeat-runs/${runId}/${what}?offset=${offset}&limitBytes=${PAGE_BYTES}`, { signal: ended.signal });
			const more = got.nextOffset !== undefined && got.nextOffset > offset;

			s.error = undefined;
			if (take(s, got)) s.version++;
			if (got.nextOffset !== undefined) offset = got.nextOffset;
			s.eof = got.eof === true;
			return more && !s.eof;
		}

		async function load(): Promise<void> {
			if (running || s.eof) {
				again = running;
				return;
			}
			running = true;
			do {
				again = false;
				try {
					while ((await page()) && !ended.signal.aborted) redraw((n) => n + 1);
				} catch (e) {
					if (ended.signal.aborted) return;
					// 404: it has not said anything yet.
					if (!(e instanceof ApiError) || (e.status !== 404 && !e.unreachable)) s.error = errorText(e);
				}
			} while (again && !s.eof);
			running = false;
			s.caughtUp = true;
			redraw((n) => n + 1);
		}

		let last = 0;
		const timer = setInterval(() => {
			const now = Date.now();

			if (document.hidden || (connection.get().state === "live" && now - last < SAFETY_MS)) return;
			last = now;
			void load();
		}, POLL_MS);
		const stop = onLive((e) => {
			if (e.payload.runId === runId) void load();
		});

		kick.current = () => void load();
		void load();
		return () => {
			ended.abort();
			clearInterval(timer);
			stop();
		};
	}, [runId]);
	// The end of the run is the end of the log.
	useEffect(() => {
		if (!live) kick.current();
	}, [live]);
	return state.current;
}

export function useLog(runId: string, live: boolean): LogState {
	return useFollowed<LogState, Page & { content: string }>(runId, live, "log", () => ({ ...NOTHING, lines: new Lines() }), (s, page) => {
		s.lines.addRecords(page.content);
		return page.content !== "";
	});
}

export function useTranscript(runId: string, live: boolean): TranscriptState {
	return useFollowed<TranscriptState, Page & { records: TurnRecord[] }>(runId, live, "transcript", () => ({ ...NOTHING, turns: new Turns() }), (s, page) => {
		for (const record of page.records) s.turns.add(record);
		return page.records.length > 0;
	});
}
