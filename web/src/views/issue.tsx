// One issue: who works on it, what was said, its runs.
import { useState } from "preact/hooks";
import { api, errorText } from "../api";
import { useHere } from "../context";
import { useQuery } from "../live";
import type { Agent, Comment, Issue, Run } from "../model";
import { Action, Facts, Loading, Problem, Section, State, Title, When } from "../ui/basic";
import { SelectField, TextField } from "../ui/field";
import { toast } from "../ui/toast";
import { agentChoices, IssueForm } from "./issue-form";
import { nameIn, RunTable } from "./run-parts";
import { WakeDialog } from "./wake";

const STATES = ["backlog", "todo", "in_progress", "in_review", "blocked", "done", "cancelled"];

export function IssueView(props: { id: string }) {
	return props.id === "new" ? <IssueForm /> : <Existing id={props.id} />;
}

function Existing(props: { id: string }) {
	const { at, to } = useHere();
	const { data: issue, error, loading } = useQuery<Issue>(`/issues/${props.id}`, ["issues"]);
	const agents = useQuery<Agent[]>(at("/agents"), ["agents"]).data;
	const runs = useQuery<Run[]>(issue ? at(`/heartbeat-runs?limit=200&issueId=${issue.id}`) : null, ["runs"]);
	const above = <a href={to("/issues")}>Issues</a>;
	const [waking, setWaking] = useState(false);
	const agent = agents?.find((a) => a.id === issue?.assigneeAgentId);

	if (loading) return <Loading />;
	if (!issue) return (<><Title above={above}>Issue</Title><Problem error={error} /></>);
	return (
		<>
			<Title above={above} actions={agent && <button type="button" class="button primary" onClick={() => setWaking(true)}>Wake {agent.name}…</button>}>
				{issue.identifier} {issue.title}
			</Title>
			<Problem error={error} />
			<Facts rows={[
				["State", <State value={issue.status} />], ["Priority", issue.priority],
				["Agent", agent ? <a href={to(`/agents/${agent.id}`)}>{agent.name}</a> : (issue.assigneeUserId ?? "nobody")],
				["Being worked on by", issue.executionRunId ? <a href={to(`/runs/${issue.executionRunId}`)}>run {issue.executionRunId.slice(-6)}</a> : "no run"],
				["Changed", <When at={issue.updatedAt} />],
			]} />
			{issue.description && <p class="prose">{issue.description}</p>}
			<Change issue={issue} agents={agents} />
			<Comments issue={issue} agents={agents} />
			<Section title="Runs">
				<Problem error={runs.error} />
				{runs.data && <RunTable ofIssue runs={runs.data} agents={agents} empty="No run has worked on it." />}
			</Section>
			{waking && agent && <WakeDialog agent={agent} issue={issue} onClose={() => setWaking(false)} />}
		</>
	);
}

function Change(props: { issue: Issue; agents: Agent[] | undefined }) {
	const { issue } = props;

	async function patch(body: Record<string, unknown>): Promise<void> {
		try {
			await api.patch(`/issues/${issue.id}`, body);
		} catch (e) {
			toast(errorText(e), "bad");
		}
	}

	return (
		<div class="filters">
			<SelectField label="State" value={issue.status} onChange={(status) => void patch({ status })}
				choices={STATES.map((s) => ({ value: s, label: s.replaceAll("_", " ") }))} />
			<SelectField label="Agent" value={issue.assigneeAgentId ?? ""} onChange={(id) => void patch({ assigneeAgentId: id || null })} choices={agentChoices(props.agents)} />
		</div>
	);
}

function Comments(props: { issue: Issue; agents: Agent[] | undefined }) {
	const path = `/issues/${props.issue.id}/comments`;
	const { to } = useHere();
	const { data, error, loading } = useQuery<Comment[]>(`${path}?order=asc`, ["issues", "runs"]);
	const [body, setBody] = useState("");

	return (
		<Section title="Comments">
			<Problem error={error} />
			{loading && <Loading />}
			{data?.length === 0 && <p class="dim">Nobody has said anything.</p>}
			<ol class="comments">
				{data?.map((c) => (
					<li key={c.id} class="card">
						<p class="dim">
							<strong>{c.authorType === "agent" ? nameIn(props.agents, c.authorAgentId) || "Agent" : (c.authorUserId ?? c.authorType)}</strong>{" "}
							<When at={c.createdAt} />
							{c.createdByRunId && <> in <a href={to(`/runs/${c.createdByRunId}`)}>run {c.createdByRunId.slice(-6)}</a></>}
						</p>
						<div class="prose">{c.body}</div>
					</li>
				))}
			</ol>
			<TextField label="New comment" value={body} onInput={setBody} lines={3} help="Its agent is woken by what others say." />
			<Action label="Comment" disabled={!body.trim()} run={async () => {
				await api.post(path, { body });
				setBody("");
			}} />
		</Section>
	);
}
