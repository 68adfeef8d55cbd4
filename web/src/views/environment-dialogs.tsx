// Archiving and deleting: what it would touch is shown first.
import { useState } from "preact/hooks";
import { api } from "../api";
import { useHere } from "../context";
import { count } from "../format";
import { refresh, useQuery } from "../live";
import type { Environment } from "../model";
import { Loading, Problem } from "../ui/basic";
import { Confirm } from "../ui/dialog";
import { CheckField, SelectField } from "../ui/field";
import { placesOf } from "./environment-table";

export interface BlastRadius {
	canDelete: boolean;
	deleteBlockedReasons: string[];
	staticReferences: {
		isManagedLocal: boolean;
		isCompanyDefault: boolean;
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
	company_default: "It is the default of its company.",
	agent_default: "Agents work there.",
	project_selection: "Projects chose it.",
	issue_selection: "Issues chose it.",
	execution_workspace_selection: "Workspaces are there.",
};

/** What points at it as the place for its work, which can be moved to another one. */
const POINTING = ["company_default", "agent_default", "project_selection", "issue_selection", "execution_workspace_selection"];

function isPointing(reason: string): boolean {
	return POINTING.includes(reason);
}

function MoveField(props: { environment: Environment; value: string; onChange: (id: string) => void }) {
	const { at } = useHere();
	const { data } = useQuery<Environment[]>(at("/environments"), ["environments"]);

	return (
		<SelectField label="Move what works here to" value={props.value} onChange={props.onChange} required
			choices={[{ value: "", label: "Choose another environment" }, ...placesOf(data?.filter((e) => e.id !== props.environment.id))]} />
	);
}

function Radius(props: { radius: BlastRadius }) {
	const refs = props.radius.staticReferences;
	const rows: [number, string][] = [
		[Number(refs.isCompanyDefault), "default of the company"],
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
	const [to, setTo] = useState("");
	const moves = data?.deleteBlockedReasons.some(isPointing) ?? false;

	return (
		<Confirm title={`Archive “${e.name}”?`} label="Archive" onClose={props.onClose} done={`Archived “${e.name}”.`}
			disabled={!data || (moves && !to)}
			run={async () => {
				await api.patch(`/environments/${e.id}`, { status: "archived", ...(moves ? { moveTo: to } : {}) });
				refresh(["companies"]);
			}}>
			<p>Nobody can lease it any more. What is leased goes on, and it can be made active again.</p>
			<Problem error={error} />
			{loading && <Loading />}
			{data && <Radius radius={data} />}
			{moves && <MoveField environment={e} value={to} onChange={setTo} />}
		</Confirm>
	);
}

export function DeleteDialog(props: { environment: Environment; onClose: () => void; onDeleted: () => void }) {
	const { environment: e } = props;
	const { data, error, loading } = useRadius(e);
	const [close, setClose] = useState(false);
	const [to, setTo] = useState("");
	const blocked = data?.deleteBlockedReasons ?? [];
	const moves = blocked.some(isPointing);
	const lives = blocked.some((r) => !isPointing(r));
	const hopeless = blocked.includes("managed_local");

	return (
		<Confirm title={`Delete “${e.name}”?`} label="Delete" danger onClose={props.onClose} done={`Deleted “${e.name}”.`}
			disabled={!data || hopeless || (lives && !close) || (moves && !to)}
			run={async () => {
				await api.delete(`/environments/${e.id}?closeLeases=${String(close)}${moves ? `&moveTo=${to}` : ""}`);
				refresh(["companies"]);
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
			{moves && !hopeless && <MoveField environment={e} value={to} onChange={setTo} />}
			{lives && !hopeless && (
				<CheckField label="Give up its leases and sandboxes first" checked={close} onChange={setClose}
					help="Commands that run there end. Changes that were not brought home are saved as salvages." />
			)}
		</Confirm>
	);
}
