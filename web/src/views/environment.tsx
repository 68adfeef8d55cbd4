// One environment: leases and their history, settings, usage; testing, archiving, deleting.
import { useState } from "preact/hooks";
import { api } from "../api";
import { useHere } from "../context";
import { count, duration } from "../format";
import { refresh, useQuery } from "../live";
import type { Agent, Environment, Lease } from "../model";
import { navigate } from "../router";
import { Action, Facts, Loading, Problem, Section, State, Title, When } from "../ui/basic";
import { Tabs } from "../ui/tabs";
import { ArchiveDialog, DeleteDialog, type BlastRadius } from "./environment-dialogs";
import { EnvironmentForm } from "./environment-form";
import { kindOf } from "./environment-table";
import { isLiving, LeaseTable } from "./lease-table";
import { ProbeResult, type Probe } from "./probe-result";

export function EnvironmentView(props: { id: string }) {
	return props.id === "new" ? <NewEnvironment /> : <OneEnvironment id={props.id} />;
}

function Above() {
	const { to } = useHere();

	return <a href={to("/environments")}>Environments</a>;
}

function NewEnvironment() {
	return (
		<>
			<Title above={<Above />}>New environment</Title>
			<EnvironmentForm />
		</>
	);
}

function OneEnvironment(props: { id: string }) {
	const { company, to } = useHere();
	const { data: e, error, loading } = useQuery<Environment>(`/environments/${props.id}`, ["environments"]);
	const [probe, setProbe] = useState<Probe | null>(null);
	const [dialog, setDialog] = useState<"archive" | "delete" | null>(null);

	if (loading) return <Loading />;
	if (!e) return (<><Title above={<Above />}>Environment</Title><Problem error={error} /></>);
	const archived = e.status === "archived";
	const isDefault = e.id === company.defaultEnvironmentId;

	return (
		<>
			<Title above={<Above />} note={e.description}
				actions={
					<>
						<Action label="Test" run={async () => { setProbe(null); setProbe(await api.post<Probe>(`/environments/${e.id}/probe`)); }} />
						<Action label="Acquire lease" disabled={archived} title="Use it by hand, for an hour"
							run={async () => {
								const made = await api.post<{ lease: Lease }>(`/environments/${e.id}/leases`);

								navigate(to(`/leases/${made.lease.id}`));
							}} />
						{!archived && !isDefault && (
							<Action label="Make default" title="Agents, issues and projects that name no environment work here from now on"
								run={async () => { await api.patch(`/companies/${company.id}`, { defaultEnvironmentId: e.id }); refresh(["companies"]); }}
								done={`“${e.name}” is the company's default: ${e.isolation}.`} />
						)}
						{archived
							? <Action label="Activate" run={() => api.patch(`/environments/${e.id}`, { status: "active" })} done={`“${e.name}” is active again.`} />
							: <button type="button" class="button" onClick={() => setDialog("archive")}>Archive…</button>}
						<button type="button" class="button danger" onClick={() => setDialog("delete")}>Delete…</button>
					</>
				}>
				{e.name}
			</Title>
			<Problem error={error} />
			<Facts rows={[["State", <State value={e.status} />], ["Kind", kindOf(e)], ["Isolation", e.isolation],
				["Default", isDefault ? "of the company: whatever names no environment works here" : "no"], ["Created", <When at={e.createdAt} />], ["Changed", <When at={e.updatedAt} />]]} />
			{probe && <ProbeResult probe={probe} />}
			<Tabs label="About the environment" tabs={[
				{ id: "leases", title: "Leases", view: () => <Leases id={e.id} /> },
				{ id: "settings", title: "Settings", view: () => <EnvironmentForm key={e.id} environment={e} /> },
				{ id: "usage", title: "Usage", view: () => <Usage environment={e} /> },
			]} />
			{dialog === "archive" && <ArchiveDialog environment={e} onClose={() => setDialog(null)} />}
			{dialog === "delete" && <DeleteDialog environment={e} onClose={() => setDialog(null)}
				onDeleted={() => { navigate(to("/environments"), true); refresh(["environments"]); }} />}
		</>
	);
}

const HISTORY = 500;

function Leases(props: { id: string }) {
	const { data, error, loading } = useQuery<Lease[]>(`/environments/${props.id}/leases?limit=${HISTORY}`, ["leases"]);
	const living = data?.filter(isLiving) ?? [];
	const ended = data?.filter((l) => !isLiving(l)) ?? [];

	if (loading) return <Loading />;
	return (
		<>
			<Problem error={error} />
			<Section title="Living">
				<LeaseTable leases={living} empty="Nobody uses it now." />
			</Section>
			<Section title="History">
				<LeaseTable leases={ended} empty="No lease has ended yet." ended />
				{data && data.length >= HISTORY && <p class="dim">The last {HISTORY} are shown.</p>}
			</Section>
		</>
	);
}

function held(l: Lease): number {
	return Date.parse(l.releasedAt ?? new Date().toISOString()) - Date.parse(l.acquiredAt);
}

function Usage(props: { environment: Environment }) {
	const { at, to } = useHere();
	const { id } = props.environment;
	const radius = useQuery<BlastRadius>(`/environments/${id}/delete-blast-radius`, ["environments", "leases", "agents"]);
	const agents = useQuery<Agent[]>(at("/agents"), ["agents"]);
	const leases = useQuery<Lease[]>(`/environments/${id}/leases?limit=${HISTORY}`, ["leases"]);
	const users = agents.data?.filter((a) => a.defaultEnvironmentId === id) ?? [];
	const all = leases.data ?? [];
	const refs = radius.data?.staticReferences;

	return (
		<>
			<Problem error={radius.error} />
			<Facts rows={[
				["Leases", count(all.length, "lease")],
				["Held in all", duration(all.reduce((sum, l) => sum + held(l), 0))],
				["Failed", String(all.filter((l) => l.status === "failed").length)],
				["Runs", count(new Set(all.map((l) => l.heartbeatRunId).filter(Boolean)).size, "run")],
				["Projects", refs && count(refs.projectSelectionCount, "project")],
				["Issues", refs && count(refs.issueSelectionCount, "issue")],
				["Workspaces", refs && count(refs.executionWorkspaceSelectionCount, "workspace")],
				["Secrets bound", refs && count(refs.secretBindingCount, "binding")],
			]} />
			<Section title="Agents that work here by default">
				{users.length === 0 ? <p class="dim">None.</p> : (
					<ul>{users.map((a) => <li key={a.id}><a href={to(`/agents/${a.id}`)}>{a.name}</a> <State value={a.status} /></li>)}</ul>
				)}
			</Section>
		</>
	);
}
