// What views of runs share.
import { useHere } from "../context";
import { duration } from "../format";
import type { Agent, Run } from "../model";
import { State, When } from "../ui/basic";
import { Table } from "../ui/table";

const OVER = ["succeeded", "failed", "cancelled", "timed_out"];

export function isOver(r: { status: string }): boolean {
	return OVER.includes(r.status);
}

export function isFailure(r: Run): boolean {
	return r.status === "failed" || r.status === "timed_out";
}

export function took(r: Run): string {
	return r.startedAt && r.finishedAt ? duration(Date.parse(r.finishedAt) - Date.parse(r.startedAt)) : "–";
}

export function nameIn(agents: Agent[] | undefined, id: string | null | undefined): string {
	return agents?.find((a) => a.id === id)?.name ?? "";
}

export function RunTable(props: { runs: Run[]; agents?: Agent[]; empty: string; ofAgent?: boolean; ofIssue?: boolean }) {
	const { to } = useHere();
	const name = (r: Run) => r.agentName || nameIn(props.agents, r.agentId) || "Agent";

	return (
		<Table caption="Runs" rows={props.runs} id={(r) => r.id} empty={props.empty}
			columns={[
				{ title: "Run", main: true, sort: (r) => Date.parse(r.createdAt), cell: (r) => (
					<a href={to(`/runs/${r.id}`)}>{props.ofAgent ? r.id.slice(-12) : `${name(r)} ${r.id.slice(-6)}`}</a>
				) },
				{ title: "State", sort: (r) => r.status, cell: (r) => <State value={r.status} /> },
				...(props.ofIssue ? [] : [{ title: "Issue", wide: true, cell: (r: Run) => r.issueIdentifier
					&& <a class="cut" href={to(`/issues/${r.issueId}`)} title={r.issueTitle ?? ""}>{r.issueIdentifier}</a> }]),
				{ title: "Why", wide: true, cell: (r) => [r.invocationSource, r.triggerDetail].filter(Boolean).join(", ").replaceAll("_", " ") },
				{ title: "Queued", sort: (r) => Date.parse(r.createdAt), cell: (r) => <When at={r.createdAt} /> },
				{ title: "Took", end: true, cell: took },
				{ title: "Problem", wide: true, cell: (r) => <span class="cut" title={r.error ?? ""}>{r.error ?? ""}</span> },
			]} />
	);
}
