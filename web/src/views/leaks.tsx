// Where record and world disagree: normally nowhere.
import { useState } from "preact/hooks";
import { api } from "../api";
import { useQuery } from "../live";
import type { LeakItem, Leaks } from "../model";
import { Action, Problem, Section, State, When } from "../ui/basic";
import { Confirm } from "../ui/dialog";

type LeakKind = "unknown" | "missing" | "uncertain" | "cleanupDue";

const KINDS: { kind: LeakKind; title: string; text: string }[] = [
	{ kind: "unknown", title: "unknown", text: "exists, and nothing here names it" },
	{ kind: "missing", title: "missing", text: "is recorded, and does not exist" },
	{ kind: "uncertain", title: "uncertain", text: "nobody can know whether it exists" },
	{ kind: "cleanupDue", title: "clean-up due", text: "could not be closed yet" },
];

export function LeaksSection() {
	const { data: leaks, error } = useQuery<Leaks>("/leaks", ["leaks"], 15_000);

	// The comparison is for administrators; others have nothing to decide here.
	if (error?.status === 403) return null;
	return (
		<Section title="Leaks">
			<Problem error={error} />
			{leaks?.total === 0 && (
				<p>
					<State value="none" tone="good" /> <span class="dim">Records and world agree, as of <When at={leaks.checkedAt} />.</span>
				</p>
			)}
			{leaks && leaks.total > 0 && (
				<ul class="leaks">
					{KINDS.flatMap((k) => leaks[k.kind].map((item, i) => <Leak key={`${k.kind}${i}`} {...k} item={item} />))}
				</ul>
			)}
		</Section>
	);
}

function Leak(props: { kind: LeakKind; title: string; text: string; item: LeakItem }) {
	const { kind, item } = props;
	const [asking, setAsking] = useState(false);
	const name = item.providerLeaseId ?? item.ownerTag ?? item.placeId ?? "";
	const decidable = item.placeId && (kind === "uncertain" || kind === "cleanupDue");

	return (
		<li>
			<State value={props.title} tone={kind === "unknown" ? "bad" : "warn"} /> <code>{name}</code> at {item.provider ?? item.driver} {props.text}.{" "}
			<span class="dim">{item.note} Next: {item.nextStep}.</span>
			{decidable && (
				<div class="actions">
					<Action small label="Close now" run={() => api.post(`/places/${item.placeId}/close`)} done="Closed." />
					<button type="button" class="button small danger" onClick={() => setAsking(true)}>Forget…</button>
				</div>
			)}
			{asking && (
				<Confirm title="Write it off?" label="Forget" danger onClose={() => setAsking(false)} done="Forgotten."
					run={() => api.post(`/places/${item.placeId}/forget`)}>
					<p>Berth will not look after <code>{name}</code> any more. If it exists at the provider, it is yours to remove.</p>
				</Confirm>
			)}
		</li>
	);
}
