// The commands that run and ran in a lease, with what they printed.
import { useEffect, useState } from "preact/hooks";
import { errorText, request } from "../api";
import { bytes, duration } from "../format";
import { useQuery } from "../live";
import type { Lease } from "../model";
import { Code, Loading, Problem, State, When } from "../ui/basic";
import { Dialog } from "../ui/dialog";
import { Table } from "../ui/table";
import { isLiving } from "./lease-table";

interface Execution {
	execId: string;
	command: string;
	args: string[] | null;
	status: string;
	exitCode: number | null;
	signal: string | null;
	stdoutBytes: number;
	stderrBytes: number;
	startedAt: string | null;
	endedAt: string | null;
}

const SHOWN = 200_000;

function line(x: Execution): string {
	return [x.command, ...(x.args ?? [])].join(" ");
}

function outcome(x: Execution): string {
	return x.signal ?? (x.exitCode === null ? "–" : `exit ${x.exitCode}`);
}

export function Commands(props: { lease: Lease }) {
	const path = `/environment-leases/${props.lease.id}/executions`;
	const { data, error, loading } = useQuery<Execution[]>(`${path}?limit=200`, ["leases"], isLiving(props.lease) ? 2000 : 0);
	const [shown, setShown] = useState<Execution | null>(null);

	if (loading) return <Loading />;
	return (
		<>
			<Problem error={error} />
			{data && (
				<Table caption="Commands" rows={data} id={(x) => x.execId}
					empty={<>Nothing ran in it. <code>berth lease exec {props.lease.id.slice(-12)} -- COMMAND</code> runs something.</>}
					columns={[
						{ title: "Command", main: true, cell: (x) => <code class="cut" title={line(x)}>{line(x)}</code> },
						{ title: "State", cell: (x) => <State value={x.status} /> },
						{ title: "Outcome", cell: outcome },
						{ title: "Started", cell: (x) => <When at={x.startedAt} /> },
						{ title: "Took", wide: true, end: true, cell: (x) => (x.startedAt && x.endedAt ? duration(Date.parse(x.endedAt) - Date.parse(x.startedAt)) : "–") },
						{ title: "Output", end: true, cell: (x) => (
							<button type="button" class="link" aria-label={`Output of ${line(x)}`} onClick={() => setShown(x)}>{bytes(x.stdoutBytes + x.stderrBytes)}</button>
						) },
					]} />
			)}
			{shown && <Output path={`${path}/${shown.execId}`} execution={shown} onClose={() => setShown(null)} />}
		</>
	);
}

async function end(path: string, stream: string, length: number): Promise<string> {
	const from = Math.max(0, length - SHOWN);
	const text = await (await request("GET", `${path}/output?stream=${stream}&offset=${from}`)).text();

	return from > 0 ? `… ${bytes(from)} before this …\n${text}` : text;
}

function Output(props: { path: string; execution: Execution; onClose: () => void }) {
	const [text, setText] = useState<{ stdout: string; stderr: string } | null>(null);
	const [error, setError] = useState<string>();

	useEffect(() => {
		const { stdoutBytes, stderrBytes } = props.execution;

		Promise.all([end(props.path, "stdout", stdoutBytes), end(props.path, "stderr", stderrBytes)])
			.then(([stdout, stderr]) => setText({ stdout, stderr }), (e: unknown) => setError(errorText(e)));
	}, []);
	return (
		<Dialog title="Output" onClose={props.onClose}
			footer={<button type="button" class="button" onClick={props.onClose}>Close</button>}>
			<p><code>{line(props.execution)}</code></p>
			<Problem error={error} />
			{!text && !error && <Loading />}
			{text && <Code label="Standard output" text={text.stdout || "(nothing)"} />}
			{text?.stderr && <><h3>Standard error</h3><Code label="Standard error" text={text.stderr} /></>}
		</Dialog>
	);
}
