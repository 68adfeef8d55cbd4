// Secrets of the company, and the vaults they are in. Values go in; none comes out.
import { useHere } from "../context";
import { useQuery } from "../live";
import type { Secret, SecretProvider, Vault } from "../model";
import { Loading, Problem, State, Title, When } from "../ui/basic";
import { Table } from "../ui/table";
import { Tabs } from "../ui/tabs";
import { RemoteImport } from "./secrets-import";
import { Vaults } from "./vaults";

export function providerName(providers: SecretProvider[] | undefined, id: string | undefined): string {
	return providers?.find((p) => p.id === id)?.label ?? (id ?? "").replaceAll("_", " ");
}

export function useVaults() {
	const { at } = useHere();
	const vaults = useQuery<Vault[]>(at("/secret-provider-configs"), ["secrets"]);
	const providers = useQuery<SecretProvider[]>(at("/secret-providers"), ["secrets"]);

	return { vaults, providers };
}

export function SecretsView() {
	const { to } = useHere();

	return (
		<>
			<Title note="Values that agents and environments need. They are sealed when they are saved, and never shown again."
				actions={<a class="button primary" href={to("/secrets/new")}>New secret</a>}>
				Secrets
			</Title>
			<Tabs label="Secrets and vaults" tabs={[
				{ id: "secrets", title: "Secrets", view: () => <List /> },
				{ id: "vaults", title: "Vaults", view: () => <Vaults /> },
				{ id: "import", title: "Import", view: () => <RemoteImport /> },
			]} />
		</>
	);
}

function List() {
	const { at, to } = useHere();
	const secrets = useQuery<Secret[]>(at("/secrets"), ["secrets"]);
	const { vaults, providers } = useVaults();

	if (secrets.loading) return <Loading />;
	return (
		<>
			<Problem error={secrets.error} />
			{secrets.data && (
				<Table caption="Secrets" rows={secrets.data} id={(s) => s.id}
					empty={<>There is no secret. <a href={to("/secrets/new")}>Add the first one</a>, or enter a value in an environment's form.</>}
					columns={[
						{ title: "Name", main: true, sort: (s) => s.name, cell: (s) => <a href={to(`/secrets/${s.id}`)}>{s.name}</a> },
						{ title: "State", sort: (s) => s.status, cell: (s) => <State value={s.status} /> },
						{ title: "Key", wide: true, sort: (s) => s.key, cell: (s) => <code>{s.key}</code> },
						{ title: "Kept in", wide: true, cell: (s) => vaults.data?.find((v) => v.id === s.providerConfigId)?.displayName ?? providerName(providers.data, s.provider) },
						{ title: "Version", end: true, wide: true, cell: (s) => s.latestVersion },
						{ title: "Used by", end: true, sort: (s) => s.referenceCount ?? 0, cell: (s) => s.referenceCount ?? 0 },
						{ title: "Last used", wide: true, cell: (s) => <When at={s.lastResolvedAt} none="never" /> },
					]} />
			)}
		</>
	);
}
