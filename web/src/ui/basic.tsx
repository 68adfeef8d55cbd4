// The small parts: headings, states, times, buttons, empty places, errors.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { errorText } from "../api";
import { ago, exactly } from "../format";
import { refresh } from "../live";
import { createStore, useStore } from "../store";
import { toast } from "./toast";

/** The heading of a view. It takes the focus when one gets there. */
export function Title(props: { children: ComponentChildren; actions?: ComponentChildren; above?: ComponentChildren; note?: ComponentChildren }) {
	return (
		<header class="title">
			{props.above && <p class="above">{props.above}</p>}
			<div class="title-row">
				<h1 tabIndex={-1}>{props.children}</h1>
				{props.actions && <div class="actions">{props.actions}</div>}
			</div>
			{props.note && <p class="note">{props.note}</p>}
		</header>
	);
}

export function Section(props: { title: ComponentChildren; children: ComponentChildren; actions?: ComponentChildren; id?: string }) {
	return (
		<section class="section" id={props.id}>
			<div class="section-head">
				<h2>{props.title}</h2>
				{props.actions && <div class="actions">{props.actions}</div>}
			</div>
			{props.children}
		</section>
	);
}

export type Tone = "good" | "busy" | "warn" | "bad" | "quiet";

const TONES: Record<string, Tone> = {
	active: "good", ready: "good", ok: "good", succeeded: "good", done: "good", enabled: "good", healthy: "good", pass: "good",
	running: "busy", in_progress: "busy", installing: "busy", queued: "busy", scheduled_retry: "busy", retained: "busy",
	pending: "warn", pending_approval: "warn", upgrade_pending: "warn", paused: "warn", uncertain: "warn", warn: "warn",
	warning: "warn", blocked: "warn", in_review: "warn", timed_out: "bad", missing: "bad", unknown: "warn",
	failed: "bad", error: "bad", lost: "bad", fail: "bad",
};

/** A state: the word, with a colour that only repeats it. */
export function State(props: { value: string; tone?: Tone; title?: string }) {
	const tone = props.tone ?? TONES[props.value] ?? "quiet";

	return (
		<span class={`state ${tone}`} title={props.title}>
			{props.value.replaceAll("_", " ")}
		</span>
	);
}

/** Changes every ten seconds, for what is said in relation to now. */
export const ticker = createStore(0);
setInterval(() => ticker.set(ticker.get() + 1), 10_000);

/** A time as people say it, exact on hovering; redrawn while it is on the screen. */
export function When(props: { at: string | null | undefined; none?: string }) {
	useStore(ticker);
	if (!props.at) return <span class="dim">{props.none ?? "–"}</span>;
	return (
		<time dateTime={props.at} title={exactly(props.at)}>
			{ago(props.at)}
		</time>
	);
}

export function Empty(props: { children: ComponentChildren }) {
	return <div class="empty">{props.children}</div>;
}

/** The server's text, where the eye is. */
export function Problem(props: { error: unknown }) {
	if (!props.error) return null;
	return (
		<div class="problem" role="alert">
			{errorText(props.error)}
		</div>
	);
}

export function Loading() {
	return <p class="dim loading" role="status">Loading…</p>;
}

export interface ActionProps {
	label: ComponentChildren;
	/** What it does. An error that it throws is shown as it is. */
	run: () => Promise<unknown> | unknown;
	/** Said when it has worked. */
	done?: string;
	kind?: "primary" | "danger" | "plain";
	disabled?: boolean;
	title?: string;
	small?: boolean;
	onError?: (e: unknown) => void;
}

/** A button for something that takes a while and may fail. */
export function Action(props: ActionProps) {
	const [busy, setBusy] = useState(false);

	async function go() {
		if (busy) return;
		setBusy(true);
		try {
			await props.run();
			if (props.done) toast(props.done);
			refresh();
		} catch (e) {
			if (props.onError) props.onError(e);
			else toast(errorText(e), "bad");
		}
		setBusy(false);
	}

	return (
		<button type="button" class={`button ${props.kind ?? "plain"}${props.small ? " small" : ""}`} title={props.title}
			disabled={props.disabled} aria-busy={busy} onClick={() => void go()}>
			{props.label}
		</button>
	);
}

/** Pairs of a name and what it is. */
export function Facts(props: { rows: [ComponentChildren, ComponentChildren][] }) {
	return (
		<dl class="facts">
			{props.rows.map(([name, value], i) => (
				<div key={i}>
					<dt>{name}</dt>
					<dd>{value ?? "–"}</dd>
				</div>
			))}
		</dl>
	);
}

export function Code(props: { text: string; label?: string }) {
	return (
		<pre class="code" tabIndex={0} role="region" aria-label={props.label ?? "Text"}>
			{props.text}
		</pre>
	);
}
