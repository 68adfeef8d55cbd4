// Tabs whose choice is part of the address (?tab=), with the keys that people expect.
import type { ComponentChildren } from "preact";
import { navigate, route } from "../router";
import { useStore } from "../store";

export interface Tab {
	id: string;
	title: string;
	view: () => ComponentChildren;
}

export function Tabs(props: { label: string; tabs: Tab[] }) {
	const { query } = useStore(route);
	const wanted = query.get("tab");
	const at = Math.max(0, props.tabs.findIndex((t) => t.id === wanted));
	const tab = props.tabs[at];

	function choose(i: number, focus = false) {
		const n = (i + props.tabs.length) % props.tabs.length;
		const next = new URLSearchParams(query);

		next.set("tab", props.tabs[n]?.id ?? "");
		navigate(`${location.pathname}?${next}`, true);
		if (focus) requestAnimationFrame(() => document.getElementById(`tab-${props.tabs[n]?.id}`)?.focus());
	}

	function onKeyDown(e: KeyboardEvent) {
		const moves: Record<string, number> = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: props.tabs.length - 1 };
		const to = moves[e.key];

		if (to === undefined) return;
		e.preventDefault();
		choose(to, true);
	}

	return (
		<>
			<div class="tabs" role="tablist" aria-label={props.label} onKeyDown={onKeyDown}>
				{props.tabs.map((t, i) => (
					<button key={t.id} id={`tab-${t.id}`} type="button" role="tab" aria-selected={i === at} aria-controls="tab-panel"
						tabIndex={i === at ? 0 : -1} onClick={() => choose(i)}>
						{t.title}
					</button>
				))}
			</div>
			<div id="tab-panel" role="tabpanel" aria-labelledby={`tab-${tab?.id}`} tabIndex={0}>
				{tab?.view()}
			</div>
		</>
	);
}
