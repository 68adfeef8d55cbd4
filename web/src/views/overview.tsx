// What runs where, at a glance: what went wrong comes first.
import { useMemo } from "preact/hooks";
import { useHere } from "../context";
import { count } from "../format";
import { useQuery } from "../live";
import type { Agent, Environment, Lease, Run } from "../model";
import { Loading, Problem, Section, State, ticker, Title, When, type Tone } from "../ui/basic";
import { useStore } from "../store";
import { Table } from "../ui/table";
import { Timeline, type Lane } from "../ui/timeline";
import { LeaseTable } from "./lease-table";
import { EnvironmentTable, namesOf } from "./environment-table";
import { LeaksSection } from "./leaks";
import { isFailure, isOver, took } from "./run-parts";

const RUNS = 200;
const LANES = 12;
const LISTED = 10;
const DAY = 86_400_000;

export function OverviewView() {
	const { at } = useHere();
	const environments = useQuery<Environment[]>(at("/environments"), ["environments"]);
	const leases = useQuery<Lease[]>(at("/environment-leases?living=true&limit=500"), ["leases"]);
	const runs = useQuery<Run[]>(at(`/heartbeat-runs?limit=${RUNS}`), ["runs"]);
	const agents = useQuery<Agent[]>(at("/agents"), ["agents"]);
	const active = environments.data?.filter((e) => e.status === "active").length;
	const running = runs.data?.filter((r) => !isOver(r)).length;
	const failed = runs.data?.filter(isFailure).length;

	return (
		<>
			<Title>Overview</Title>
			<ul class="tiles">
				<Tile href="environments" title="Environments" value={active} note="active" />
				<Tile href="leases" title="Leases" value={leases.data?.length} note="living" tone={leases.data?.length ? "busy" : "quiet"} />
				<Tile href="runs" title="Runs" value={running} note="now" tone={running ? "busy" : "quiet"} />
				<Tile href="runs" title="Failures" value={failed} note={runs.data ? `of the last ${count(runs.data.length, "run")}` : "of the last runs"}
					tone={failed ? "bad" : "good"} />
			</ul>
			<LeaksSection />
			<RunsSection runs={runs.data} agents={agents.data} error={runs.error?.status === 404 ? undefined : runs.error} />
			<Section title="Living leases">
				<Problem error={leases.error} />
				{leases.loading && <Loading />}
				{leases.data && <LeaseTable leases={leases.data} names={namesOf(environments.data)}
					empty={<>No environment is in use. Runs lease one by themselves; <code>berth lease acquire</code> does it by hand.</>} />}
			</Section>
			<Section title="Environments">
				<Problem error={environments.error} />
				{environments.loading && <Loading />}
				{environments.data && <EnvironmentTable environments={environments.data} leases={leases.data} page={50} />}
			</Section>
		</>
	);
}

function Tile(props: { href: string; title: string; value: number | undefined; note: string; tone?: Tone }) {
	const { to } = useHere();

	return (
		<li>
			<a class={`tile ${props.tone ?? ""}`} href={to(`/${props.href}`)}>
				<span class="tile-title">{props.title}</span>
				<span class="tile-value">{props.value?.toLocaleString("en") ?? "–"}</span>
				<span class="tile-note">{props.note}</span>
			</a>
		</li>
	);
}

/* Runs */

function runTone(r: Run): Tone {
	if (isFailure(r)) return "bad";
	if (r.status === "succeeded") return "good";
	return r.status === "cancelled" ? "quiet" : "busy";
}

function rank(r: Run): number {
	if (!isOver(r)) return 1;
	return isFailure(r) ? 0 : 2;
}

function began(r: Run): number {
	return Date.parse(r.startedAt ?? r.createdAt);
}

/** A lane for each agent, those with failures first, over the time that the runs cover. */
function lanesOf(runs: Run[], name: (r: Run) => string, href: (r: Run) => string): Lane[] {
	const lanes = new Map<string, Run[]>();

	for (const r of runs) lanes.set(r.agentId, [...(lanes.get(r.agentId) ?? []), r]);
	return [...lanes.values()]
		.sort((a, b) => Math.min(...a.map(rank)) - Math.min(...b.map(rank)))
		.slice(0, LANES)
		.map((all) => ({
			label: name(all[0] as Run),
			spans: all.map((r) => ({
				id: r.id,
				start: began(r),
				end: r.finishedAt ? Date.parse(r.finishedAt) : null,
				tone: runTone(r),
				text: `${name(r)}: ${r.status.replaceAll("_", " ")}`,
				href: href(r),
			})),
		}));
}

function RunsSection(props: { runs: Run[] | undefined; agents: Agent[] | undefined; error: unknown }) {
	const { to } = useHere();
	const runs = props.runs ?? [];

	useStore(ticker); // what runs grows
	const names = new Map(props.agents?.map((a) => [a.id, a.name]));
	const name = (r: Run) => r.agentName ?? names.get(r.agentId) ?? "agent";
	const now = Date.now();
	const today = runs.filter((r) => !r.finishedAt || Date.parse(r.finishedAt) > now - DAY);
	const from = Math.max(now - DAY, Math.min(now - 60_000, ...today.map(began)));
	const lanes = useMemo(() => lanesOf(today, name, (r) => to(`/runs/${r.id}`)), [props.runs, props.agents]);
	const sorted = useMemo(() => [...runs].sort((a, b) => rank(a) - rank(b) || began(b) - began(a)).slice(0, LISTED), [props.runs]);

	return (
		<Section title="Runs">
			<Problem error={props.error} />
			{!props.runs && !props.error && <Loading />}
			{lanes.length > 0 && <Timeline label="Runs over time, by agent" lanes={lanes} from={from} to={now} />}
			{props.runs && <Table caption="Runs, failures first" rows={sorted} id={(r) => r.id}
				empty={<>No run yet. Wake an agent, and what it does appears here.</>}
				columns={[
					{ title: "Agent", main: true, cell: (r) => <a href={to(`/runs/${r.id}`)}>{name(r)}</a> },
					{ title: "Status", cell: (r) => <State value={r.status} /> },
					{ title: "Started", cell: (r) => <When at={r.startedAt ?? r.createdAt} /> },
					{ title: "Took", end: true, wide: true, cell: took },
					{ title: "Problem", wide: true, cell: (r) => <span class="cut" title={r.error ?? ""}>{r.error ?? ""}</span> },
				]} />}
		</Section>
	);
}
