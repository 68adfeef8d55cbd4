// Where the lines of a run's log come from: pages by offset until there is nothing more, then whenever the event stream
// says that something was written, or every second where there is no stream.
import { useEffect, useRef, useState } from "preact/hooks";
import { api, ApiError, errorText } from "../api";
import { connection, onLive } from "../live";
import { Lines } from "./lines";

interface Page {
	content: string;
	nextOffset?: number;
	eof?: boolean;
}

const PAGE_BYTES = 1 << 20;
const POLL_MS = 1000;
const SAFETY_MS = 5000; // an event may have been missed

export interface LogState {
	lines: Lines;
	/** Grows with every change of the lines. */
	version: number;
	/** What there was when we came has been read. */
	caughtUp: boolean;
	/** Nothing will follow. */
	eof: boolean;
	error: string | undefined;
}

export function useLog(runId: string, live: boolean): LogState {
	const [, redraw] = useState(0);
	const state = useRef<LogState>({ lines: new Lines(), version: 0, caughtUp: false, eof: false, error: undefined });
	const kick = useRef<() => void>(() => {});

	useEffect(() => {
		const ended = new AbortController();
		const s = state.current;
		let offset = 0;
		let running = false;
		let again = false;

		async function page(): Promise<boolean> {
			const got = await api.get<Page>(`/heartbeat-runs/${runId}/log?offset=${offset}&limitBytes=${PAGE_BYTES}`, { signal: ended.signal });
			const more = got.nextOffset !== undefined && got.nextOffset > offset;

			s.error = undefined;
			if (got.content) {
				s.lines.addRecords(got.content);
				s.version++;
			}
			if (got.nextOffset !== undefined) offset = got.nextOffset;
			s.eof = got.eof === true;
			return more;
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
