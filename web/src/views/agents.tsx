// The agents of the company.
import { useState } from "preact/hooks";
import { useHere } from "../context";
import { useQuery } from "../live";
import type { Agent, Environment } from "../model";
import { Loading, Problem, State, Title, When } from "../ui/basic";
import { Table } from "../ui/table";
import { namesOf } from "./environment-table";
import { WakeDialog } from "./wake";

export function AgentsView() {
	const { at, to } = useHere();
	const agents = useQuery<Agent[]>(at("/agents"), ["agents"]);
	const environments = useQuery<Environment[]>(at("/environments"), ["environments"]);
	const names = namesOf(environments.data);
	const [waking, setWaking] = useState<Agent | null>(null);

	return (
		<>
			<Title note="Programs that are woken to work: on an issue, by hand, or by the clock."
				actions={<a class="button primary" href={to("/agents/new")}>New agent</a>}>
				Agents
			</Title>
			<Problem error={agents.error} />
			{agents.loading && <Loading />}
			{agents.data && (
				<Table caption="Agents" rows={agents.data} id={(a) => a.id}
					empty={<>There is no agent yet. <a href={to("/agents/new")}>Make the first one</a>.</>}
					columns={[
						{ title: "Name", main: true, sort: (a) => a.name, cell: (a) => <a href={to(`/agents/${a.id}`)}>{a.name}</a> },
						{ title: "State", sort: (a) => a.status, cell: (a) => <State value={a.status} /> },
						{ title: "Kind", wide: true, sort: (a) => a.adapterType, cell: (a) => a.adapterType.replaceAll("_", " ") },
						{ title: "Works in", wide: true, cell: (a) => (a.defaultEnvironmentId ? (names.get(a.defaultEnvironmentId) ?? "–") : "the company's default") },
						{ title: "Last run", cell: (a) => <When at={a.lastHeartbeatAt} none="never" /> },
						{ title: "Actions", cell: (a) => (
							<button type="button" class="button small" aria-label={`Wake ${a.name}`} onClick={() => setWaking(a)}>Wake…</button>
						) },
					]} />
			)}
			{waking && <WakeDialog agent={waking} onClose={() => setWaking(null)} />}
		</>
	);
}
