// One lease: who has it, what runs in it, its workspace; giving it up.
import { useState } from "preact/hooks";
import { api } from "../api";
import { useHere } from "../context";
import { bytes } from "../format";
import { useQuery } from "../live";
import type { Environment, Lease, Salvage } from "../model";
import { Action, Code, Empty, Facts, Loading, Problem, Section, State, Title, When } from "../ui/basic";
import { Confirm } from "../ui/dialog";
import { Tabs } from "../ui/tabs";
import { ChangeList, type Change } from "./changes";
import { Commands } from "./commands";
import { Holder, isLiving, LeaseState } from "./lease-table";
import { SalvageTable } from "./salvage-table";

export function LeaseView(props: { id: string }) {
	const { to } = useHere();
	const { data: lease, error, loading } = useQuery<Lease>(`/environment-leases/${props.id}`, ["leases"]);
	const environment = useQuery<Environment>(lease ? `/environments/${lease.environmentId}` : null, ["environments"]).data;
	const above = <a href={to("/leases")}>Leases</a>;

	if (loading) return <Loading />;
	if (!lease) return (<><Title above={above}>Lease</Title><Problem error={error} /></>);
	return (
		<>
			<Title above={above} actions={<Actions lease={lease} />}>
				Lease in {environment?.name ?? "…"}
			</Title>
			<Problem error={error} />
			<Facts rows={[
				["State", <LeaseState lease={lease} />],
				["Environment", <a href={to(`/environments/${lease.environmentId}`)}>{environment?.name ?? lease.environmentId}</a>],
				["Holder", <Holder lease={lease} />],
				["Provider", lease.provider ?? "–"],
				["At the provider", lease.providerLeaseId ? <code>{lease.providerLeaseId}</code> : "–"],
				["Since", <When at={lease.acquiredAt} />],
				["Last used", <When at={lease.lastUsedAt} />],
				isLiving(lease) ? ["Expires", <When at={lease.expiresAt} none="never" />] : ["Ended", <When at={lease.releasedAt} />],
				["Policy", lease.leasePolicy.replaceAll("_", " ")],
				["Id", <code>{lease.id}</code>],
			]} />
			{lease.failureReason && <Problem error={lease.failureReason} />}
			<Tabs label="About the lease" tabs={[
				{ id: "commands", title: "Commands", view: () => <Commands lease={lease} /> },
				{ id: "workspace", title: "Workspace", view: () => <WorkspacePart lease={lease} /> },
				{ id: "details", title: "Details", view: () => <Code label="Metadata" text={JSON.stringify(lease.metadata ?? {}, null, 2)} /> },
			]} />
		</>
	);
}

/* Acting */

function Actions(props: { lease: Lease }) {
	const { lease } = props;
	const { to } = useHere();
	const path = `/environment-leases/${lease.id}`;
	const [asking, setAsking] = useState<"release" | "destroy" | null>(null);
	const living = isLiving(lease);

	return (
		<>
			{living && <a class="button" href={to(`/terminal/${lease.id}`)}>Terminal</a>}
			{living && <Action label="Renew" title="One more hour" run={() => api.post(`${path}/renew`, { ttlMs: 3_600_000 })} done="It lasts an hour from now." />}
			{living && <Action label="Pause" title="All its commands stand still until it is resumed" run={() => api.post(`${path}/pause`)} done="Paused." />}
			<Action label="Resume" run={() => api.post(`${path}/resume`)} done="Resumed." />
			{living && <button type="button" class="button" onClick={() => setAsking("release")}>Release…</button>}
			{living && <button type="button" class="button danger" onClick={() => setAsking("destroy")}>Destroy…</button>}
			{asking === "release" && (
				<Confirm title="Release this lease?" label="Release" onClose={() => setAsking(null)} done="Released."
					run={() => api.post(`${path}/release`)}>
					<p>What runs in it ends. Changes that were not brought home are saved as a salvage.</p>
				</Confirm>
			)}
			{asking === "destroy" && (
				<Confirm title="Destroy this lease?" label="Destroy" danger onClose={() => setAsking(null)} done="Destroyed."
					run={() => api.post(`${path}/destroy`)}>
					<p>The provider removes it for good, also where it would be kept for the next run. The lease ends as failed.</p>
				</Confirm>
			)}
		</>
	);
}

/* Workspace */

interface Workspace {
	state: string;
	way: string;
	localPath: string;
	cwd: string;
	files: number;
	bytes: number;
	restoredAt: string | null;
	note: string | null;
	progress: { phase: string; done: number; total: number } | null;
}

function WorkspacePart(props: { lease: Lease }) {
	const { at } = useHere();
	const path = `/environment-leases/${props.lease.id}/workspace`;
	const { data: w, error } = useQuery<Workspace>(path, ["leases"]);
	const salvages = useQuery<Salvage[]>(at("/salvages?limit=500"), ["leases"]);
	const own = salvages.data?.filter((s) => s.leaseId === props.lease.id) ?? [];

	return (
		<>
			{error && error.status !== 404 && <Problem error={error} />}
			{error?.status === 404 && <Empty>No directory was brought in. <code>berth workspace stage</code> does that; runs do it by themselves.</Empty>}
			{w && (
				<>
					<Facts rows={[
						["State", <State value={w.state} />], ["Directory here", <code>{w.localPath}</code>], ["Directory there", <code>{w.cwd}</code>],
						["Way", w.way], ["Size", `${w.files} files, ${bytes(w.bytes)}`], ["Brought home", <When at={w.restoredAt} none="not yet" />],
					]} />
					{w.progress && <p role="status">{w.progress.phase}: {w.progress.done}{w.progress.total ? ` of ${w.progress.total}` : ""}</p>}
					{w.note && <p class="hint">{w.note}</p>}
					{w.state === "staged" && isLiving(props.lease) && <Changes path={path} />}
				</>
			)}
			{own.length > 0 && <Section title="Salvages"><SalvageTable salvages={own} /></Section>}
		</>
	);
}

function Changes(props: { path: string }) {
	const [diff, setDiff] = useState<{ changes: Change[]; truncated: boolean } | null>(null);

	return (
		<Section title="Changes" actions={
			<>
				<Action label="Show changes" small run={async () => setDiff(await api.get(`${props.path}/diff?text=1`))} />
				<Action label="Bring home" small kind="primary" run={async () => { await api.post(`${props.path}/restore`); setDiff(null); }} done="Brought home." />
			</>
		}>
			{diff && <ChangeList changes={diff.changes} />}
		</Section>
	);
}
