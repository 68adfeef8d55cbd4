// One run: when each part was, what it says, whom it called, what it changed.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { api } from "../api";
import { useHere } from "../context";
import { LogView } from "../log/log-view";
import { useLog, useTranscript } from "../log/source";
import { TranscriptView } from "../log/transcript-view";
import { onLive, useQuery } from "../live";
import type { Environment, RunDetail, RunEvent } from "../model";
import { navigate } from "../router";
import { Action, Code, Facts, Loading, Problem, Section, State, Title, When } from "../ui/basic";
import { Confirm } from "../ui/dialog";
import { Table } from "../ui/table";
import { Tabs } from "../ui/tabs";
import { RunFiles } from "./run-files";
import { isOver, took } from "./run-parts";
import { RunTimelineView } from "./run-timeline";
import { watchRun, type Woken } from "./wake";

/** Events of a run, as they come. */
function useEvents(id: string): RunEvent[] {
	const query = useQuery<RunEvent[]>(`/heartbeat-runs/${id}/events?limit=1000`, ["runs"]);

	useEffect(() => onLive((e) => {
		if (e.type === "heartbeat.run.event" && e.payload.runId === id) query.reload();
	}), [id]);
	return query.data ?? [];
}

export function RunView(props: { id: string }) {
	const { to } = useHere();
	const { data: run, error, loading } = useQuery<RunDetail>(`/heartbeat-runs/${props.id}`, ["runs"]);
	const adapter = useQuery<{ hasTranscript: boolean }>(run?.adapterType ? `/adapters/${encodeURIComponent(run.adapterType)}` : null);
	const events = useEvents(props.id);
	const above = <a href={to("/runs")}>Runs</a>;

	if (loading || adapter.loading) return <Loading />;
	if (!run) return (<><Title above={above}>Run</Title><Problem error={error} /></>);
	const calls = events.filter((e) => e.eventType === "callback");

	return (
		<>
			<Title above={above} actions={<Actions run={run} />}>
				{run.agentName ?? "Agent"}, run {run.id.slice(-6)}
			</Title>
			<Problem error={error} />
			<About run={run} />
			{run.error && <Problem error={run.error} />}
			{run.advice && <p class="hint">{run.advice}</p>}
			<Tabs label="About the run" tabs={[
				...(adapter.data?.hasTranscript ? [{ id: "transcript", title: "Transcript", view: () => <Transcript run={run} /> }] : []),
				{ id: "log", title: "Log", view: () => <Log run={run} /> },
				{ id: "callbacks", title: `Callbacks (${calls.length})`, view: () => <Callbacks calls={calls} /> },
				{ id: "files", title: "Files", view: () => <RunFiles run={run} /> },
				{ id: "events", title: "Events", view: () => <Events events={events} /> },
				{ id: "details", title: "Details", view: () => <Details run={run} /> },
			]} />
			<Section title="Timeline"><RunTimelineView run={run} events={events} /></Section>
		</>
	);
}

function About(props: { run: RunDetail }) {
	const { run } = props;
	const { to } = useHere();
	const environment = useQuery<Environment>(run.environmentId ? `/environments/${run.environmentId}` : null).data;

	const rows: [string, ComponentChildren][] = [
		["State", <><State value={run.status} />{isOver(run) && run.step !== "done" && <span class="dim"> {run.step}</span>}</>],
		["Agent", <a href={to(`/agents/${run.agentId}`)}>{run.agentName ?? run.agentId}</a>],
		["Issue", run.issueIdentifier ? <a href={to(`/issues/${run.issueId}`)}>{run.issueIdentifier} {run.issueTitle}</a> : "–"],
		["Environment", run.environmentId ? <a href={to(`/environments/${run.environmentId}`)}>{environment?.name ?? run.environmentId}</a> : "–"],
		["Lease", run.leaseId ? <a href={to(`/leases/${run.leaseId}`)}><code>{run.leaseId.slice(-12)}</code></a> : "–"],
		["Woken by", [run.invocationSource, run.triggerDetail].filter(Boolean).join(", ").replaceAll("_", " ")],
		["Queued", <When at={run.createdAt} />],
		["Took", isOver(run) ? took(run) : "still going"],
		["Exit", run.signal ?? (run.exitCode === null ? "–" : String(run.exitCode))],
	];

	if (run.waiting && !isOver(run)) rows.push(["Waiting", run.waiting.reason], ["Next try", <When at={run.waiting.nextTryAt} />]);
	if (run.incomplete) rows.push(["Output", <State value="incomplete" tone="warn" />]);
	if (run.retryOfRunId) rows.push(["Retry of", <a href={to(`/runs/${run.retryOfRunId}`)}><code>{run.retryOfRunId.slice(-12)}</code></a>]);
	if (run.scheduledRetryAt && !isOver(run)) rows.push(["Tried again", <When at={run.scheduledRetryAt} />]);
	return <Facts rows={rows} />;
}

function Actions(props: { run: RunDetail }) {
	const { run } = props;
	const { to } = useHere();
	const [asking, setAsking] = useState(false);

	async function retry(): Promise<void> {
		const woken = await api.post<Woken>(`/agents/${run.agentId}/wakeup`, {
			source: "on_demand", triggerDetail: "manual", reason: run.errorCode === "process_lost" ? "resume_process_lost_run" : "retry_failed_run",
			payload: { ...(run.issueId ? { issueId: run.issueId } : {}), ...(run.taskKey ? { taskKey: run.taskKey } : {}), retryOfRunId: run.id },
		});

		watchRun(woken, (id) => navigate(to(`/runs/${id}`)));
	}

	if (isOver(run)) return <Action label={run.status === "succeeded" ? "Run again" : "Retry"} kind="primary" run={retry} />;
	return (
		<>
			<button type="button" class="button danger" onClick={() => setAsking(true)}>Cancel…</button>
			{asking && (
				<Confirm title="Cancel this run?" label="Cancel the run" danger onClose={() => setAsking(false)} done="Cancelled."
					run={() => api.post(`/heartbeat-runs/${run.id}/cancel`)}>
					<p>Its command is ended. What it changed by then is brought home or saved as a salvage.</p>
				</Confirm>
			)}
		</>
	);
}

/** Tokens and cost of the run, where its adapter tells them. */
function spent(run: RunDetail): string {
	const { inputTokens, cachedInputTokens, outputTokens, costUsd } = run.usageJson ?? {};
	const parts: string[] = [];

	if (typeof inputTokens === "number" && typeof outputTokens === "number")
		parts.push(`${inputTokens.toLocaleString("en")} tokens in, ${Number(cachedInputTokens ?? 0).toLocaleString("en")} cached, ${outputTokens.toLocaleString("en")} out`);
	if (typeof costUsd === "number") parts.push(`$${costUsd.toFixed(costUsd < 1 ? 4 : 2)}`);
	return parts.join(" · ");
}

function Silence(props: { live: boolean }) {
	return <p class="dim" role="status">{props.live ? "It has not said anything yet." : "It did not say anything."}</p>;
}

function Transcript(props: { run: RunDetail }) {
	const live = !isOver(props.run);
	const transcript = useTranscript(props.run.id, live);

	return (
		<>
			<Problem error={transcript.error} />
			{transcript.turns.all.length === 0 && transcript.caughtUp && <Silence live={live} />}
			<TranscriptView transcript={transcript} live={live} note={spent(props.run)} />
		</>
	);
}

function Log(props: { run: RunDetail }) {
	const live = !isOver(props.run);
	const log = useLog(props.run.id, live);

	return (
		<>
			<Problem error={log.error} />
			{log.lines.all.length === 0 && log.caughtUp && <Silence live={live} />}
			<LogView log={log} live={live} fileName={`run-${props.run.id}.log`} />
		</>
	);
}

function Callbacks(props: { calls: RunEvent[] }) {
	return (
		<Table caption="Callbacks" rows={props.calls} id={(e) => e.id} empty="It has not called the API."
			columns={[
				{ title: "Request", main: true, cell: (e) => <code>{String(e.payload?.method ?? "")} {String(e.payload?.path ?? e.message)}</code> },
				{ title: "Status", end: true, sort: (e) => Number(e.payload?.status ?? 0), cell: (e) => {
					const status = Number(e.payload?.status ?? 0);

					return <State value={String(status)} tone={status >= 400 ? "bad" : "good"} />;
				} },
				{ title: "Took", end: true, sort: (e) => Number(e.payload?.ms ?? 0), cell: (e) => `${Number(e.payload?.ms ?? 0).toFixed(1)} ms` },
				{ title: "When", sort: (e) => e.seq, cell: (e) => <When at={e.createdAt} /> },
			]} />
	);
}

function Events(props: { events: RunEvent[] }) {
	return (
		<Table caption="Events" rows={props.events} id={(e) => e.id} empty="Nothing has happened yet."
			columns={[
				{ title: "Event", main: true, cell: (e) => e.message ?? e.eventType },
				{ title: "Kind", cell: (e) => e.eventType },
				{ title: "Level", wide: true, cell: (e) => <State value={e.level ?? "info"} tone={e.level === "error" ? "bad" : e.level === "warn" ? "warn" : "quiet"} /> },
				{ title: "When", cell: (e) => <time dateTime={e.createdAt}>{e.createdAt.slice(11, 23)}</time> },
			]} />
	);
}

function Details(props: { run: RunDetail }) {
	const { resultJson, usageJson, contextSnapshot } = props.run;

	return (
		<>
			<Section title="Result"><Code label="Result" text={JSON.stringify(resultJson ?? {}, null, 2)} /></Section>
			<Section title="Usage"><Code label="Usage" text={JSON.stringify(usageJson ?? {}, null, 2)} /></Section>
			<Section title="Context"><Code label="Context" text={JSON.stringify(contextSnapshot ?? {}, null, 2)} /></Section>
		</>
	);
}
