// One agent: what it runs, its runs, its keys.
import { useState } from "preact/hooks";
import { api } from "../api";
import { useHere } from "../context";
import { useQuery } from "../live";
import type { Agent, Environment, Run } from "../model";
import { Action, Code, Facts, Loading, Problem, State, Title, When } from "../ui/basic";
import { Tabs } from "../ui/tabs";
import { AgentForm } from "./agent-form";
import { placeOf } from "./environment-table";
import { RunTable } from "./run-parts";
import { WakeDialog } from "./wake";

export function AgentView(props: { id: string }) {
	return props.id === "new" ? <AgentForm /> : <Existing id={props.id} />;
}

function Existing(props: { id: string }) {
	const { to } = useHere();
	const { data: agent, error, loading } = useQuery<Agent>(`/agents/${props.id}`, ["agents"]);
	const environment = useQuery<Environment>(agent?.defaultEnvironmentId ? `/environments/${agent.defaultEnvironmentId}` : null).data;
	const above = <a href={to("/agents")}>Agents</a>;

	if (loading) return <Loading />;
	if (!agent) return (<><Title above={above}>Agent</Title><Problem error={error} /></>);
	return (
		<>
			<Title above={above} actions={<Actions agent={agent} />} note={agent.title ?? undefined}>{agent.name}</Title>
			<Problem error={error} />
			<Facts rows={[
				["State", <State value={agent.status} title={agent.pauseReason ?? undefined} />], ["Kind", agent.adapterType.replaceAll("_", " ")], ["Role", agent.role],
				["Works in", agent.defaultEnvironmentId ? <a href={to(`/environments/${agent.defaultEnvironmentId}`)}>{environment ? placeOf(environment) : "…"}</a> : "the company's default environment"],
				["Last run", <When at={agent.lastHeartbeatAt} none="never" />], ["Id", <code>{agent.id}</code>],
			]} />
			<Tabs label="About the agent" tabs={[
				{ id: "runs", title: "Runs", view: () => <Runs agent={agent} /> },
				{ id: "config", title: "Configuration", view: () => <Configuration agent={agent} /> },
			]} />
		</>
	);
}

function Actions(props: { agent: Agent }) {
	const { agent } = props;
	const [waking, setWaking] = useState(false);

	return (
		<>
			<button type="button" class="button primary" onClick={() => setWaking(true)}>Wake…</button>
			{agent.status === "paused"
				? <Action label="Resume" run={() => api.post(`/agents/${agent.id}/resume`)} done={`${agent.name} can be woken again.`} />
				: <Action label="Pause" title="Ends its runs; it is not woken until it is resumed" run={() => api.post(`/agents/${agent.id}/pause`)} done={`${agent.name} is paused.`} />}
			{waking && <WakeDialog agent={agent} onClose={() => setWaking(false)} />}
		</>
	);
}

function Runs(props: { agent: Agent }) {
	const { at } = useHere();
	const { data, error, loading } = useQuery<Run[]>(at(`/heartbeat-runs?limit=500&agentId=${props.agent.id}`), ["runs"]);

	if (loading) return <Loading />;
	return (
		<>
			<Problem error={error} />
			{data && <RunTable runs={data} ofAgent empty="It has not run yet. Wake it." />}
		</>
	);
}

/** As the server shows it: what sounds like a secret is replaced. */
function Configuration(props: { agent: Agent }) {
	const { data, error, loading } = useQuery<{ adapterConfig?: unknown; runtimeConfig?: unknown }>(`/agents/${props.agent.id}/configuration`, ["agents"]);

	if (loading) return <Loading />;
	return (
		<>
			<Problem error={error} />
			{data && <Code label="Configuration" text={JSON.stringify({ adapterConfig: data.adapterConfig, runtimeConfig: data.runtimeConfig }, null, 2)} />}
		</>
	);
}
