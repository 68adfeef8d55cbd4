// Archiving and deleting: what it would touch is shown first.
import { useState } from "preact/hooks";
import { api } from "../api";
import { count } from "../format";
import { useQuery } from "../live";
import type { Environment } from "../model";
import { Loading, Problem } from "../ui/basic";
import { Confirm } from "../ui/dialog";
import { CheckField } from "../ui/field";

export interface BlastRadius {
	canDelete: boolean;
	deleteBlockedReasons: string[];
	staticReferences: {
		isManagedLocal: boolean;
		agentDefaultCount: number;
		executionWorkspaceSelectionCount: number;
		issueSelectionCount: number;
		projectSelectionCount: number;
		secretBindingCount: number;
	};
	activeRuntimeUse: { activeLeaseCount: number };
	pendingCleanupLeaseCount: number;
	reusableSandboxLeaseCount: number;
}

const REASONS: Record<string, string> = {
	managed_local: "It belongs to its company and cannot be deleted; archive it instead.",
	active_lease: "Somebody uses it now.",
	reusable_sandbox_lease: "A sandbox is kept for its next run.",
	pending_sandbox_cleanup: "A sandbox is still being cleaned up.",
};

function Radius(props: { radius: BlastRadius }) {
	const refs = props.radius.staticReferences;
	const rows: [number, string][] = [
		[refs.agentDefaultCount, `default of ${count(refs.agentDefaultCount, "agent")}`],
		[refs.projectSelectionCount, `chosen by ${count(refs.projectSelectionCount, "project")}`],
		[refs.issueSelectionCount, `chosen by ${count(refs.issueSelectionCount, "issue")}`],
		[refs.executionWorkspaceSelectionCount, `chosen by ${count(refs.executionWorkspaceSelectionCount, "workspace")}`],
		[refs.secretBindingCount, `${count(refs.secretBindingCount, "secret")} bound to it`],
		[props.radius.activeRuntimeUse.activeLeaseCount, count(props.radius.activeRuntimeUse.activeLeaseCount, "living lease")],
		[props.radius.reusableSandboxLeaseCount, count(props.radius.reusableSandboxLeaseCount, "idle sandbox", "idle sandboxes")],
		[props.radius.pendingCleanupLeaseCount, `${count(props.radius.pendingCleanupLeaseCount, "clean-up")} under way`],
	];
	const touched = rows.filter(([n]) => n > 0);

	return (
		<>
			<h3>What this touches</h3>
			{touched.length === 0 ? <p>Nothing: nobody uses it or names it.</p> : (
				<ul>{touched.map(([, text]) => <li key={text}>{text}</li>)}</ul>
			)}
		</>
	);
}

function useRadius(e: Environment) {
	return useQuery<BlastRadius>(`/environments/${e.id}/delete-blast-radius`, ["environments", "leases"]);
}

export function ArchiveDialog(props: { environment: Environment; onClose: () => void }) {
	const { environment: e } = props;
	const { data, error, loading } = useRadius(e);

	return (
		<Confirm title={`Archive “${e.name}”?`} label="Archive" onClose={props.onClose} done={`Archived “${e.name}”.`}
			run={() => api.patch(`/environments/${e.id}`, { status: "archived" })}>
			<p>Nobody can lease it any more. What is leased goes on, and it can be made active again.</p>
			<Problem error={error} />
			{loading && <Loading />}
			{data && <Radius radius={data} />}
		</Confirm>
	);
}

export function DeleteDialog(props: { environment: Environment; onClose: () => void; onDeleted: () => void }) {
	const { environment: e } = props;
	const { data, error, loading } = useRadius(e);
	const [close, setClose] = useState(false);
	const blocked = data?.deleteBlockedReasons ?? [];
	const hopeless = blocked.includes("managed_local");

	return (
		<Confirm title={`Delete “${e.name}”?`} label="Delete" danger onClose={props.onClose} done={`Deleted “${e.name}”.`}
			disabled={!data || hopeless || (blocked.length > 0 && !close)}
			run={async () => {
				await api.delete(`/environments/${e.id}${close ? "?closeLeases=true" : ""}`);
				props.onDeleted();
			}}>
			<p>This cannot be taken back. Its leases leave the history with it.</p>
			<Problem error={error} />
			{loading && <Loading />}
			{data && <Radius radius={data} />}
			{blocked.length > 0 && (
				<>
					<h3>What stands against it</h3>
					<ul>{blocked.map((r) => <li key={r}>{REASONS[r] ?? r}</li>)}</ul>
				</>
			)}
			{blocked.length > 0 && !hopeless && (
				<CheckField label="Give up its leases and sandboxes first" checked={close} onChange={setClose}
					help="Commands that run there end. Changes that were not brought home are saved as salvages." />
			)}
		</Confirm>
	);
}
