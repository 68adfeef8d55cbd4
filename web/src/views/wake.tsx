// Waking an agent.
import { useState } from "preact/hooks";
import { api } from "../api";
import { useHere } from "../context";
import { refresh, useQuery } from "../live";
import type { Agent, Issue } from "../model";
import { navigate } from "../router";
import { Confirm } from "../ui/dialog";
import { SelectField, TextField } from "../ui/field";
import { toast } from "../ui/toast";

/** A run, or why there is none. */
export interface Woken {
	id?: string;
	status: string;
	message?: string;
	executionRunId?: string | null;
}

/** Go to the run; one that was not started says why, and shows the one in its way. */
export function watchRun(woken: Woken, go: (id: string) => void): void {
	const id = woken.id ?? woken.executionRunId;

	if (woken.status === "skipped") toast(woken.message ?? "Nothing was started.", "bad");
	refresh(["runs", "agents", "issues"]);
	if (id) go(id);
}

interface WakeProps {
	agent: Agent;
	issue?: Issue;
	onClose: () => void;
}

export function WakeDialog(props: WakeProps) {
	const { agent } = props;
	const { at, to } = useHere();
	const issues = useQuery<Issue[]>(props.issue ? null : at("/issues"), ["issues"]);
	const [issue, setIssue] = useState(props.issue?.id ?? "");
	const [reason, setReason] = useState("");
	const open = issues.data?.filter((i) => i.status !== "done" && i.status !== "cancelled") ?? [];

	return (
		<Confirm title={`Wake ${agent.name}?`} label="Wake" onClose={props.onClose}
			run={async () => {
				const woken = await api.post<Woken>(`/agents/${agent.id}/wakeup`, {
					source: "on_demand", triggerDetail: "manual", reason: reason.trim() || null, payload: issue ? { issueId: issue } : null,
				});

				watchRun(woken, (id) => navigate(to(`/runs/${id}`)));
			}}>
			{props.issue ? <p>It works on {props.issue.identifier} {props.issue.title}.</p> : (
				<SelectField label="Issue" value={issue} onChange={setIssue}
					choices={[{ value: "", label: "none" }, ...open.map((i) => ({ value: i.id, label: `${i.identifier} ${i.title}` }))]} />
			)}
			<TextField label="Reason" value={reason} onInput={setReason} help="Optional; the agent is told." />
		</Confirm>
	);
}
