// The parts of a run to scale, in milliseconds since it was queued.
import { useEffect, useState } from "preact/hooks";
import type { RunDetail, RunEvent, RunTimeline } from "../model";
import type { Tone } from "../ui/basic";
import { Timeline, type Lane, type Span } from "../ui/timeline";
import { isOver } from "./run-parts";

interface Part {
	name: string;
	from: keyof RunTimeline;
	to: keyof RunTimeline;
	/** What it was, for who does not see it. */
	text: string;
}

const PARTS: Part[] = [
	{ name: "Queue", from: "queuedAt", to: "startedAt", text: "Waiting in the queue" },
	{ name: "Lease", from: "startedAt", to: "leasedAt", text: "Leasing the environment" },
	{ name: "Stage", from: "leasedAt", to: "stagedAt", text: "Bringing the workspace in" },
	{ name: "Start", from: "stagedAt", to: "spawnedAt", text: "Starting the command" },
	{ name: "First output", from: "spawnedAt", to: "firstOutputAt", text: "Until the first output" },
	{ name: "Work", from: "spawnedAt", to: "exitedAt", text: "The command" },
	{ name: "Restore", from: "exitedAt", to: "restoredAt", text: "Bringing the workspace home" },
	{ name: "Release", from: "finishedAt", to: "releasedAt", text: "Releasing the environment" },
];

const ORDER: (keyof RunTimeline)[] = ["queuedAt", "startedAt", "leasedAt", "stagedAt", "spawnedAt", "exitedAt", "restoredAt", "finishedAt", "releasedAt"];

export function ms(n: number): string {
	return `${Math.round(n).toLocaleString("en")} ms`;
}

function at(t: RunTimeline, key: keyof RunTimeline): number | null {
	const v = t[key];

	return v ? Date.parse(v) : null;
}

/** The end of the last part before `key`: steps that were left out have no time of their own. */
function before(t: RunTimeline, key: keyof RunTimeline): number | null {
	for (let i = ORDER.indexOf(key); i >= 0; i--) {
		const found = at(t, ORDER[i] as keyof RunTimeline);

		if (found !== null) return found;
	}
	return null;
}

function spanOf(part: Part, run: RunDetail): Span | null {
	const t = run.timeline;
	const end = at(t, part.to);
	const start = end === null ? at(t, part.from) : before(t, part.from);

	if (start === null || (end === null && isOver(run) && part.to !== "releasedAt")) return null;
	if (end === null && part.to === "releasedAt" && run.step === "done") return null;
	const running = end === null;

	// What comes later has begun: this was left out.
	if (running && PARTS.slice(PARTS.indexOf(part) + 1).some((p) => p.from !== part.from && at(t, p.from) !== null)) return null;
	const tone: Tone = running ? "busy" : part.name === "Work" && run.status !== "succeeded" && isOver(run) ? "bad" : part.name === "Work" ? "good" : "quiet";

	return { id: part.name, start, end: running ? null : Math.max(start, end), tone, text: part.text };
}

function callbackSpans(events: RunEvent[]): Span[] {
	return events.filter((e) => e.eventType === "callback").map((e) => {
		const end = Date.parse(e.createdAt);
		const took = Number(e.payload?.ms ?? 0);

		return { id: e.id, start: end - took, end, tone: e.level === "warn" ? "warn" : "good", text: e.message ?? "Callback" };
	});
}

function lanesOf(run: RunDetail, events: RunEvent[], now: number): Lane[] {
	const lanes: Lane[] = [];

	for (const part of PARTS) {
		const span = spanOf(part, run);

		if (span) lanes.push({ label: `${part.name} ${ms((span.end ?? now) - span.start)}`, spans: [span] });
		if (part.name === "Work") {
			const calls = callbackSpans(events);

			if (calls.length > 0) lanes.push({ label: `Callbacks ${calls.length}`, spans: calls });
		}
	}
	return lanes;
}

export function RunTimelineView(props: { run: RunDetail; events: RunEvent[] }) {
	const { run } = props;
	const [now, setNow] = useState(Date.now);
	const over = isOver(run) && (run.timeline.releasedAt !== null || run.step === "done");

	useEffect(() => {
		if (over) return;
		const timer = setInterval(() => setNow(Date.now()), 500);

		return () => clearInterval(timer);
	}, [over]);
	const start = Date.parse(run.timeline.queuedAt ?? run.createdAt);
	const lanes = lanesOf(run, props.events, now);
	const last = Math.max(start + 1, over ? 0 : now, ...lanes.flatMap((l) => l.spans.map((s) => s.end ?? s.start)));
	const shift = (s: Span): Span => ({ ...s, start: s.start - start, end: s.end === null ? null : s.end - start });

	return (
		<Timeline label="Timeline of the run" fine from={0} to={last - start} axis={ms} took={ms} when={(t) => `${ms(t)} after it was queued`}
			lanes={lanes.map((l) => ({ label: l.label, spans: l.spans.map(shift) }))} />
	);
}
