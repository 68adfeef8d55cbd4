import { useHere } from "../context";
import type { Environment, Lease } from "../model";
import { State, When } from "../ui/basic";
import { Table } from "../ui/table";

export function namesOf(environments: Environment[] | undefined): Map<string, string> {
	return new Map(environments?.map((e) => [e.id, e.name]));
}

/** What is said of an environment wherever it can be chosen. */
export function placeOf(e: Environment): string {
	return e.isolated ? e.name : `${e.name} – ${e.isolation}`;
}

/** The choices for a place of work. */
export function placesOf(environments: Environment[] | undefined): { value: string; label: string }[] {
	return (environments ?? []).filter((e) => e.status === "active").map((e) => ({ value: e.id, label: placeOf(e) }));
}

/** "sandbox · berth": what costs, and what does not. */
export function kindOf(e: Environment): string {
	const provider = e.config.provider ?? e.config.driverKey;

	return typeof provider === "string" && provider ? `${e.driver} · ${provider}` : e.driver;
}

export function EnvironmentTable(props: { environments: Environment[]; leases?: Lease[]; page?: number }) {
	const { company, to } = useHere();
	const living = new Map<string, number>();

	for (const l of props.leases ?? []) living.set(l.environmentId, (living.get(l.environmentId) ?? 0) + 1);
	return (
		<Table caption="Environments" rows={props.environments} id={(e) => e.id} page={props.page}
			empty={<>No environment yet. <a href={to("/environments/new")}>Create one</a>: this machine, a sandbox, an SSH host.</>}
			columns={[
				{ title: "Name", main: true, sort: (e) => e.name, cell: (e) => (
					<><a href={to(`/environments/${e.id}`)}>{e.name}</a>{e.id === company.defaultEnvironmentId && <span class="dim"> default</span>}</>
				) },
				{ title: "State", sort: (e) => e.status, cell: (e) => <State value={e.status} /> },
				{ title: "Kind", sort: kindOf, cell: kindOf },
				{ title: "Isolation", wide: true, sort: (e) => e.isolation, cell: (e) => e.isolation },
				{ title: "Leases", end: true, sort: (e) => living.get(e.id) ?? 0, cell: (e) => living.get(e.id) ?? <span class="dim">0</span> },
				{ title: "Description", wide: true, cell: (e) => <span class="cut">{e.description ?? ""}</span> },
				{ title: "Changed", wide: true, sort: (e) => Date.parse(e.updatedAt), cell: (e) => <When at={e.updatedAt} /> },
			]} />
	);
}
