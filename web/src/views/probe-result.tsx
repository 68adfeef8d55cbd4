// What a test of an environment found, step by step, with what helps.
import type { Json, JsonObject } from "../model";
import { State, type Tone } from "../ui/basic";

export interface Probe {
	ok: boolean;
	driver: string;
	summary: string;
	details: JsonObject | null;
	hint?: string;
}

interface Step {
	name: string;
	tone: Tone;
	word: string;
	text: string;
	fix?: string;
}

function text(v: Json | undefined): string {
	return v === undefined || v === null ? "" : typeof v === "object" ? JSON.stringify(v) : String(v);
}

const SEVERITY: Record<string, [Tone, string]> = { info: ["good", "ok"], warning: ["warn", "warning"], error: ["bad", "failed"] };

/** Built-in providers have `points`, plugins `diagnostics`, the rest plain facts. */
function stepsOf(p: Probe): Step[] {
	const d = p.details ?? {};

	if (Array.isArray(d.points))
		return (d.points as JsonObject[]).map((s) => ({
			name: text(s.name).replaceAll("-", " "), tone: s.ok ? "good" : "bad", word: s.ok ? "ok" : "failed", text: text(s.found),
			fix: s.fix ? text(s.fix) : undefined,
		}));
	if (Array.isArray(d.diagnostics) && d.diagnostics.length > 0)
		return (d.diagnostics as JsonObject[]).map((s) => {
			const [tone, word] = SEVERITY[text(s.severity)] ?? ["quiet", text(s.severity)];

			return { name: text(s.code) || "check", tone, word, text: text(s.message), fix: s.details ? text(s.details) : undefined };
		});
	return Object.entries(d).filter(([, v]) => typeof v !== "object").map(([key, v]) => {
		const bad = key === "error";

		return { name: key, tone: bad ? "bad" : "quiet", word: bad ? "failed" : "noted", text: text(v) };
	});
}

export function ProbeResult(props: { probe: Probe }) {
	const steps = stepsOf(props.probe);

	return (
		<div class="card probe" role="status">
			<p>
				<State value={props.probe.ok ? "passed" : "failed"} tone={props.probe.ok ? "good" : "bad"} />{" "}
				<strong>{props.probe.summary}</strong>
			</p>
			{props.probe.hint && <p class="hint">{props.probe.hint}</p>}
			<ol class="steps">
				{steps.map((s, i) => (
					<li key={i}>
						<State value={s.word} tone={s.tone} /> <span class="step-name">{s.name}</span> <span class="dim">{s.text}</span>
						{s.fix && <div class="hint">{s.fix}</div>}
					</li>
				))}
			</ol>
		</div>
	);
}
