// Writing an issue.
import { useState } from "preact/hooks";
import { api } from "../api";
import { useHere } from "../context";
import { refresh, useQuery } from "../live";
import type { Agent, Issue } from "../model";
import { navigate } from "../router";
import { Problem, Title } from "../ui/basic";
import { SelectField, TextField } from "../ui/field";
import { useForm } from "../ui/form";
import { toast } from "../ui/toast";

export function agentChoices(agents: Agent[] | undefined): { value: string; label: string }[] {
	return [{ value: "", label: "nobody" }, ...(agents ?? []).filter((a) => a.status !== "terminated").map((a) => ({ value: a.id, label: a.name }))];
}

export function IssueForm() {
	const { at, to } = useHere();
	const agents = useQuery<Agent[]>(at("/agents"), ["agents"]);
	const [title, setTitle] = useState("");
	const [description, setDescription] = useState("");
	const [priority, setPriority] = useState("medium");
	const [agent, setAgent] = useState("");
	const { errors, error, busy, submit } = useForm();

	const save = (e: Event) => submit(e, { title: !title.trim() && "A title is needed." }, async () => {
		const issue = await api.post<Issue>(at("/issues"), {
			title: title.trim(), description: description.trim() || null, priority, ...(agent ? { assigneeAgentId: agent } : {}),
		});

		toast(`Created ${issue.identifier}.`);
		refresh(["issues", "runs", "agents"]);
		navigate(to(`/issues/${issue.id}`));
	});

	return (
		<>
			<Title above={<a href={to("/issues")}>Issues</a>}>New issue</Title>
			<form class="form" noValidate onSubmit={save}>
				<TextField label="Title" value={title} onInput={setTitle} error={errors.title} required />
				<TextField label="Description" value={description} onInput={setDescription} error={errors.description} lines={6} />
				<SelectField label="Priority" value={priority} onChange={setPriority} choices={["critical", "high", "medium", "low"].map((p) => ({ value: p, label: p }))} />
				<SelectField label="Agent" value={agent} onChange={setAgent} error={errors.assigneeAgentId} choices={agentChoices(agents.data)}
					help="Who gets it is woken at once." />
				<Problem error={error} />
				<div class="form-foot">
					<button type="submit" class="button primary" disabled={busy} aria-busy={busy}>Create issue</button>
				</div>
			</form>
		</>
	);
}
