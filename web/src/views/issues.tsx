// The issues of the company.
import { useState } from "preact/hooks";
import { useHere } from "../context";
import { useQuery } from "../live";
import type { Agent, Issue } from "../model";
import { Loading, Problem, State, Title, When } from "../ui/basic";
import { CheckField } from "../ui/field";
import { Table } from "../ui/table";
import { nameIn } from "./run-parts";

function isClosed(i: Issue): boolean {
	return i.status === "done" || i.status === "cancelled";
}

export function IssuesView() {
	const { at, to } = useHere();
	const issues = useQuery<Issue[]>(at("/issues"), ["issues"]);
	const agents = useQuery<Agent[]>(at("/agents"), ["agents"]);
	const [all, setAll] = useState(false);
	const shown = issues.data?.filter((i) => all || !isClosed(i));

	return (
		<>
			<Title note="What is to be done. An issue that is given to an agent wakes it."
				actions={<a class="button primary" href={to("/issues/new")}>New issue</a>}>
				Issues
			</Title>
			<Problem error={issues.error} />
			{issues.loading && <Loading />}
			{issues.data && <CheckField label="Also those that are done or cancelled" checked={all} onChange={setAll} />}
			{shown && (
				<Table caption="Issues" rows={shown} id={(i) => i.id}
					empty={<>Nothing is to be done. <a href={to("/issues/new")}>Write an issue</a>.</>}
					columns={[
						{ title: "Issue", main: true, sort: (i) => i.identifier, cell: (i) => <a href={to(`/issues/${i.id}`)}>{i.identifier} {i.title}</a> },
						{ title: "State", sort: (i) => i.status, cell: (i) => <State value={i.status} /> },
						{ title: "Priority", wide: true, sort: (i) => ["critical", "high", "medium", "low"].indexOf(i.priority), cell: (i) => i.priority },
						{ title: "Agent", sort: (i) => nameIn(agents.data, i.assigneeAgentId), cell: (i) => (
							i.assigneeAgentId ? <a href={to(`/agents/${i.assigneeAgentId}`)}>{nameIn(agents.data, i.assigneeAgentId) || "…"}</a> : <span class="dim">{i.assigneeUserId ?? "nobody"}</span>
						) },
						{ title: "Run", cell: (i) => (i.executionRunId ? <a href={to(`/runs/${i.executionRunId}`)}>{i.executionRunId.slice(-6)}</a> : <span class="dim">–</span>) },
						{ title: "Changed", wide: true, sort: (i) => Date.parse(i.updatedAt), cell: (i) => <When at={i.updatedAt} /> },
					]} />
			)}
		</>
	);
}
