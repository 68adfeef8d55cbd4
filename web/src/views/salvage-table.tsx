// What was saved of places that were given up: look at it, apply it, throw it away.
import { useState } from "preact/hooks";
import { api } from "../api";
import { useHere } from "../context";
import { bytes, count, shortId } from "../format";
import { useQuery } from "../live";
import type { Salvage } from "../model";
import { Loading, Problem, When } from "../ui/basic";
import { Confirm } from "../ui/dialog";
import { Table } from "../ui/table";
import { ChangeList, type Change } from "./changes";

export function SalvageTable(props: { salvages: Salvage[] }) {
	const { to } = useHere();
	const [asking, setAsking] = useState<{ what: "apply" | "delete"; salvage: Salvage } | null>(null);

	return (
		<>
			<Table caption="Salvages" rows={props.salvages} id={(s) => s.id}
				empty="Nothing had to be saved. When a lease ends before its changes are brought home, they appear here."
				columns={[
					{ title: "Directory", main: true, sort: (s) => s.localPath, cell: (s) => <code>{s.localPath}</code> },
					{ title: "Changes", end: true, cell: (s) => s.changes + s.deletes },
					{ title: "Size", end: true, wide: true, cell: (s) => bytes(s.bytes) },
					{ title: "Why", wide: true, cell: (s) => s.reason.replaceAll("_", " ") },
					{ title: "Lease", wide: true, cell: (s) => <a href={to(`/leases/${s.leaseId}`)}><code>{shortId(s.leaseId)}</code></a> },
					{ title: "Saved", sort: (s) => Date.parse(s.createdAt), cell: (s) => <When at={s.createdAt} /> },
					{ title: "Applied", wide: true, cell: (s) => <When at={s.appliedAt} none="no" /> },
					{ title: "Kept until", wide: true, cell: (s) => <When at={s.expiresAt} none="deleted" /> },
					{ title: "Actions", cell: (s) => (
						<div class="actions">
							<button type="button" class="button small" onClick={() => setAsking({ what: "apply", salvage: s })}>Apply…</button>
							<button type="button" class="button small danger" onClick={() => setAsking({ what: "delete", salvage: s })}>Delete…</button>
						</div>
					) },
				]} />
			{asking?.what === "apply" && <ApplyDialog salvage={asking.salvage} onClose={() => setAsking(null)} />}
			{asking?.what === "delete" && (
				<Confirm title="Delete this salvage?" label="Delete" danger onClose={() => setAsking(null)} done="Deleted."
					run={() => api.delete(`/salvages/${asking.salvage.id}`)}>
					<p>{count(asking.salvage.changes + asking.salvage.deletes, "change")} of <code>{asking.salvage.localPath}</code> are lost for good.</p>
				</Confirm>
			)}
		</>
	);
}

function ApplyDialog(props: { salvage: Salvage; onClose: () => void }) {
	const { id, localPath } = props.salvage;
	const diff = useQuery<{ changes: Change[] }>(`/salvages/${id}/diff?text=1`);

	return (
		<Confirm title="Apply this salvage?" label="Apply" onClose={props.onClose} done="Applied." run={() => api.post(`/salvages/${id}/apply`)}>
			<p>This is merged into <code>{localPath}</code>. Where both sides changed a file, both versions are kept.</p>
			{diff.loading && <Loading />}
			<Problem error={diff.error} />
			{diff.data && <ChangeList changes={diff.data.changes} />}
		</Confirm>
	);
}
