// Taking up what a vault holds: first what there is, then what was chosen.
import { useState } from "preact/hooks";
import { api } from "../api";
import { useHere } from "../context";
import { count } from "../format";
import { refresh } from "../live";
import { Action, Empty, Loading, Problem, Section, State } from "../ui/basic";
import { SelectField, TextField } from "../ui/field";
import { Table } from "../ui/table";
import { useVaults } from "./secrets";

interface Candidate {
	externalRef: string;
	remoteName: string;
	name: string;
	key: string;
	providerVersionRef: string | null;
	providerMetadata: unknown;
	status: string;
	importable: boolean;
	conflicts: { message: string }[];
}

interface Preview {
	nextToken: string | null;
	candidates: Candidate[];
}

interface Result {
	externalRef: string;
	name: string;
	status: string;
	reason: string | null;
}

export function RemoteImport() {
	const { at } = useHere();
	const { vaults } = useVaults();
	const usable = vaults.data?.filter((v) => v.provider === "aws_secrets_manager" && (v.status === "ready" || v.status === "warning")) ?? [];
	const [chosen, setChosen] = useState("");
	const [query, setQuery] = useState("");
	const [found, setFound] = useState<Preview | null>(null);
	const [picked, setPicked] = useState<Set<string>>(new Set());
	const [results, setResults] = useState<Result[] | null>(null);
	const [error, setError] = useState<unknown>(null);
	const vault = chosen || usable[0]?.id || "";

	async function preview(token?: string): Promise<void> {
		setError(null);
		setResults(null);
		const page = await api.post<Preview>(at("/secrets/remote-import/preview"), {
			providerConfigId: vault, pageSize: 50, ...(query.trim() ? { query: query.trim() } : {}), ...(token ? { nextToken: token } : {}),
		});

		setFound({ nextToken: page.nextToken, candidates: [...(token ? (found?.candidates ?? []) : []), ...page.candidates] });
		if (!token) setPicked(new Set());
	}

	async function commit(): Promise<void> {
		setError(null);
		const wanted = (found?.candidates ?? []).filter((c) => picked.has(c.externalRef));
		const done = await api.post<{ results: Result[] }>(at("/secrets/remote-import"), {
			providerConfigId: vault,
			secrets: wanted.map(({ externalRef, name, key, providerVersionRef }) => ({ externalRef, name, key, ...(providerVersionRef ? { providerVersionRef } : {}) })),
		});

		setResults(done.results);
		setFound(null);
		refresh(["secrets"]);
	}

	function pick(c: Candidate, on: boolean): void {
		const next = new Set(picked);

		if (on) next.add(c.externalRef);
		else next.delete(c.externalRef);
		setPicked(next);
	}

	if (vaults.loading) return <Loading />;
	if (usable.length === 0) return <Empty>There is no vault that can list what it holds. Make one of AWS Secrets Manager under “Vaults”.</Empty>;
	return (
		<>
			<p>What is taken up stays in the vault; only its name comes here. Nothing changes until you import.</p>
			<div class="filters">
				<SelectField label="Vault" value={vault} onChange={setChosen} choices={usable.map((v) => ({ value: v.id, label: v.displayName }))} />
				<TextField label="Name contains" type="search" value={query} onInput={setQuery} />
				<Action label="Look" run={() => preview()} onError={setError} />
			</div>
			<Problem error={error} />
			{found && (
				<Section title={count(found.candidates.length, "candidate")}
					actions={<Action label={`Import ${count(picked.size, "secret")}`} kind="primary" small disabled={picked.size === 0 || picked.size > 100} run={commit} onError={setError} />}>
					<Table caption="Candidates" rows={found.candidates} id={(c) => c.externalRef} empty="The vault holds nothing like this."
						columns={[
							{ title: "Name", main: true, cell: (c) => (
								<label class="toggle">
									<input type="checkbox" disabled={!c.importable} checked={picked.has(c.externalRef)} onChange={(e) => pick(c, e.currentTarget.checked)} />
									{c.name}
								</label>
							) },
							{ title: "State", cell: (c) => <State value={c.status} tone={c.importable ? "good" : "warn"} /> },
							{ title: "In the vault", wide: true, cell: (c) => <code>{c.remoteName}</code> },
							{ title: "In the way", cell: (c) => c.conflicts.map((x) => x.message).join(" ") },
						]} />
					{found.nextToken && <Action label="Show more" small run={() => preview(found.nextToken ?? undefined)} onError={setError} />}
				</Section>
			)}
			{results && (
				<Section title="What came of it">
					<ul class="list" role="status">
						{results.map((r) => <li key={r.externalRef}><State value={r.status} tone={r.status === "imported" ? "good" : "warn"} /> {r.name} <span class="dim">{r.reason?.replaceAll("_", " ")}</span></li>)}
					</ul>
				</Section>
			)}
		</>
	);
}
