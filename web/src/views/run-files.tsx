// What a run did to its workspace: what it changed so far, or what came home.
import { useHere } from "../context";
import { bytes, count } from "../format";
import { useQuery } from "../live";
import type { JsonObject, RunDetail, Salvage } from "../model";
import { Empty, Facts, Loading, Problem, Section, State, When } from "../ui/basic";
import { ChangeList, type Change } from "./changes";
import { isOver } from "./run-parts";
import { SalvageTable } from "./salvage-table";

interface Restore {
	added: number;
	changed: number;
	deleted: number;
	left: number;
	bytes: number;
	conflicts: { path: string; kept: string }[];
	git: { head?: string; merged?: boolean; conflictRef?: string; note?: string } | null;
	changes?: Change[];
}

interface Workspace {
	state: string;
	localPath: string;
	files: number;
	bytes: number;
	restoredAt: string | null;
	lastRestore: Restore | null;
	note: string | null;
	progress: { phase: string; done: number; total: number } | null;
}

export function RunFiles(props: { run: RunDetail }) {
	const { run } = props;
	const { at } = useHere();
	const path = run.leaseId ? `/environment-leases/${run.leaseId}/workspace` : null;
	const { data: w, error, loading } = useQuery<Workspace>(path, ["runs", "leases"]);
	const salvages = useQuery<Salvage[]>(run.leaseId ? at("/salvages?limit=500") : null, ["leases"]);
	const own = salvages.data?.filter((s) => s.leaseId === run.leaseId) ?? [];

	if (loading) return <Loading />;
	if (!w) {
		if (error && error.status !== 404) return <Problem error={error} />;
		return <Empty>No directory was brought in for this run: it worked in place, or has not got that far.</Empty>;
	}
	return (
		<>
			<Facts rows={[
				["State", <State value={w.state} />], ["Directory here", <code>{w.localPath}</code>],
				["Size", w.files ? `${count(w.files, "file")}, ${bytes(w.bytes)}` : "–"], ["Brought home", <When at={w.restoredAt} none="not yet" />],
			]} />
			{w.progress && <p role="status">{w.progress.phase}: {w.progress.done}{w.progress.total ? ` of ${w.progress.total}` : ""}</p>}
			{w.note && <p class="hint">{w.note}</p>}
			{w.state === "staged" && !isOver(run) && path && <Changes path={path} />}
			{w.lastRestore && <Restored report={w.lastRestore} />}
			{own.length > 0 && <Section title="Salvages"><SalvageTable salvages={own} /></Section>}
		</>
	);
}

/** So far: while it runs. */
function Changes(props: { path: string }) {
	const { data, error, loading, reload } = useQuery<{ changes: Change[]; truncated: boolean }>(`${props.path}/diff?text=1`);

	return (
		<Section title="Changed so far" actions={<button type="button" class="button small" onClick={reload}>Look again</button>}>
			<Problem error={error} />
			{loading && <Loading />}
			{data && <ChangeList changes={data.changes} />}
			{data?.truncated && <p class="dim">There is more than is listed.</p>}
		</Section>
	);
}

function Restored(props: { report: Restore }) {
	const { report } = props;
	const git = report.git as (JsonObject & Restore["git"]) | null;

	return (
		<Section title="Brought home">
			<p>
				{count(report.added, "file")} added, {report.changed} changed, {report.deleted} deleted, {bytes(report.bytes)}.
				{report.left > 0 && ` ${count(report.left, "deletion")} left out, because the file was changed here.`}
			</p>
			{git?.head && <p>Commits came along, up to <code>{git.head}</code>{git.note ? `: ${git.note}` : "."}</p>}
			{report.conflicts.length > 0 && (
				<>
					<h3>Changed on both sides</h3>
					<ul>{report.conflicts.map((c) => <li key={c.path}><code>{c.path}</code>; our version is kept in <code>{c.kept}</code></li>)}</ul>
				</>
			)}
			{report.changes && <ChangeList changes={report.changes} />}
		</Section>
	);
}
