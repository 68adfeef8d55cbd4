// All runs of the company.
import { useState } from "preact/hooks";
import { useHere } from "../context";
import { useQuery } from "../live";
import type { Agent, Run } from "../model";
import { Loading, Problem, Title } from "../ui/basic";
import { SelectField } from "../ui/field";
import { isFailure, isOver, RunTable } from "./run-parts";

const KINDS: Record<string, (r: Run) => boolean> = {
	all: () => true,
	now: (r) => !isOver(r),
	failed: isFailure,
	succeeded: (r) => r.status === "succeeded",
	cancelled: (r) => r.status === "cancelled",
};

export function RunsView() {
	const { at, to } = useHere();
	const [kind, setKind] = useState("all");
	const [agent, setAgent] = useState("");
	const agents = useQuery<Agent[]>(at("/agents"), ["agents"]);
	const runs = useQuery<Run[]>(at(`/heartbeat-runs?limit=1000${agent ? `&agentId=${agent}` : ""}`), ["runs"]);
	const shown = runs.data?.filter(KINDS[kind] ?? (() => true));

	return (
		<>
			<Title note="A run is one time that an agent was woken: where it worked, what it said, and how it ended."
				actions={<a class="button primary" href={to("/agents")}>Wake an agent…</a>}>
				Runs
			</Title>
			<div class="filters">
				<SelectField label="State" value={kind} onChange={setKind} choices={Object.keys(KINDS).map((k) => ({ value: k, label: k === "now" ? "queued and running" : k }))} />
				<SelectField label="Agent" value={agent} onChange={setAgent}
					choices={[{ value: "", label: "all" }, ...(agents.data ?? []).map((a) => ({ value: a.id, label: a.name }))]} />
			</div>
			<Problem error={runs.error} />
			{runs.loading && <Loading />}
			{shown && <RunTable key={`${kind}${agent}`} runs={shown} agents={agents.data}
				empty={runs.data?.length ? "No run is like this." : "Nothing has run yet. Agents run when they are woken: by hand, by an issue, or by the clock."} />}
		</>
	);
}
