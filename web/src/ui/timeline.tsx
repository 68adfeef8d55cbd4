// Spans of time in lanes, drawn to scale. Each span is a link with its own text, so it can be reached and read without
// seeing it.
import { clockTime, duration, exactly } from "../format";
import type { Tone } from "./basic";

export interface Span {
	id: string;
	start: number;
	/** null: goes on. */
	end: number | null;
	tone: Tone;
	/** What it is, without its time. */
	text: string;
	href?: string;
}

export interface Lane {
	label: string;
	spans: Span[];
}

export interface TimelineProps {
	label: string;
	lanes: Lane[];
	from: number;
	to: number;
	/** Written under the axis; the time of day unless told. */
	axis?: (at: number) => string;
	/** When a span began, as it is said; date and time unless told. */
	when?: (at: number) => string;
	/** How long one took, as it is said. */
	took?: (ms: number) => string;
	/** Labels have figures in them, and are not cut. */
	fine?: boolean;
}

const TICKS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000,
	900_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000, 43_200_000, 86_400_000];

/** Round steps, about six of them. */
function ticks(from: number, to: number): number[] {
	const step = TICKS.find((t) => (to - from) / t <= 7) ?? 86_400_000;
	const all: number[] = [];

	for (let at = Math.ceil(from / step) * step; at <= to && all.length < 40; at += step) all.push(at);
	return all;
}

export function Timeline(props: TimelineProps) {
	const { from, to } = props;
	const percent = (at: number) => `${(100 * (Math.min(Math.max(at, from), to) - from)) / Math.max(1, to - from)}%`;
	const axis = props.axis ?? ((at: number) => clockTime(at).slice(0, 5));

	return (
		<div class={`timeline${props.fine ? " fine" : ""}`} role="group" aria-label={props.label}>
			{props.lanes.map((lane) => (
				<div class="lane" key={lane.label}>
					<div class="lane-label" title={lane.label}>
						{lane.label}
					</div>
					<ul class="lane-track">
						{lane.spans.map((s) => (
							<li key={s.id} style={{ left: `min(${percent(s.start)}, 100% - 4px)`, width: `calc(${percent(s.end ?? to)} - ${percent(s.start)})` }}>
								<Bar span={s} now={to} when={props.when ?? exactly} took={props.took ?? duration} />
							</li>
						))}
					</ul>
				</div>
			))}
			<div class="lane axis" aria-hidden="true">
				<div class="lane-label" />
				<div class="lane-track">
					{ticks(from, to).map((at) => (
						<span key={at} style={{ left: percent(at), transform: at > to - (to - from) / 10 ? "translateX(-100%)" : undefined }}>
							{axis(at)}
						</span>
					))}
				</div>
			</div>
		</div>
	);
}

function Bar(props: { span: Span; now: number; when: (at: number) => string; took: (ms: number) => string }) {
	const { span } = props;
	const took = span.end === null ? `for ${props.took(props.now - span.start)} so far` : props.took(span.end - span.start);
	const text = `${span.text}, ${props.when(span.start)}, ${took}`;

	if (!span.href) return <span class={`bar ${span.tone}`} title={text} role="img" aria-label={text} />;
	return <a class={`bar ${span.tone}`} href={span.href} title={text} aria-label={text} />;
}
