import type { ComponentChildren } from "preact";
import { useHere } from "../context";
import { shortId } from "../format";
import type { Lease } from "../model";
import { State, When } from "../ui/basic";
import { Table } from "../ui/table";

export function isLiving(l: Lease): boolean {
	return l.status === "active" || l.status === "retained";
}

/** Who has it: a run, or somebody by hand. */
export function Holder(props: { lease: Lease }) {
	const { to } = useHere();
	const run = props.lease.heartbeatRunId;

	return run ? <a href={to(`/runs/${run}`)}>run {shortId(run)}</a> : <>by hand</>;
}

export function LeaseTable(props: { leases: Lease[]; names?: Map<string, string>; empty: ComponentChildren; ended?: boolean }) {
	const { to } = useHere();
	const { names } = props;

	return (
		<Table caption="Leases" rows={props.leases} id={(l) => l.id} empty={props.empty}
			columns={[
				{ title: "Lease", main: true, cell: (l) => <a href={to(`/leases/${l.id}`)}><code>{shortId(l.id)}</code></a> },
				...(names ? [{ title: "Environment", sort: (l: Lease) => names.get(l.environmentId) ?? "", cell: (l: Lease) => (
					<a href={to(`/environments/${l.environmentId}`)}>{names.get(l.environmentId) ?? shortId(l.environmentId)}</a>
				) }] : []),
				{ title: "State", sort: (l) => l.status, cell: (l) => <LeaseState lease={l} /> },
				{ title: "Holder", cell: (l) => <Holder lease={l} /> },
				{ title: "Provider", wide: true, sort: (l) => l.provider ?? "", cell: (l) => l.provider ?? "–" },
				{ title: "Since", sort: (l) => Date.parse(l.acquiredAt), cell: (l) => <When at={l.acquiredAt} /> },
				props.ended
					? { title: "Ended", wide: true, cell: (l) => <When at={l.releasedAt} /> }
					: { title: "Expires", wide: true, sort: (l) => Date.parse(l.expiresAt ?? "9999-01-01"), cell: (l) => <When at={l.expiresAt} none="never" /> },
			]} />
	);
}

export function LeaseState(props: { lease: Lease }) {
	const { status, cleanupStatus, failureReason } = props.lease;

	return (
		<>
			<State value={status} title={failureReason ?? undefined} />
			{cleanupStatus === "failed" && <> <State value="clean-up failed" tone="bad" /></>}
			{cleanupStatus === "pending" && <> <State value="cleaning up" tone="warn" /></>}
		</>
	);
}
