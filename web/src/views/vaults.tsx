// Vaults: where secrets are kept, and whether that works.
import { useState } from "preact/hooks";
import { api, fieldErrors } from "../api";
import { useHere } from "../context";
import { useQuery } from "../live";
import type { Schema, Vault } from "../model";
import { SchemaForm } from "../form/schema-form";
import type { JsonObject } from "../model";
import { Action, Loading, Problem, Section, State, When } from "../ui/basic";
import { Confirm } from "../ui/dialog";
import { SelectField, TextField } from "../ui/field";
import { Table } from "../ui/table";
import { toast } from "../ui/toast";
import { providerName, useVaults } from "./secrets";

const text = (title: string, description?: string): Schema => ({ type: "string", title, description });

const CONFIG: Record<string, Schema> = {
	local_encrypted: { type: "object", properties: {
		backupReminderAcknowledged: { type: "boolean", title: "The master key is backed up", description: "Without it, what is sealed cannot be opened." } } },
	aws_secrets_manager: { type: "object", required: ["region"], properties: {
		region: text("Region", "For example eu-west-1."), namespace: text("Namespace", "Part of every name."), secretNamePrefix: text("Prefix"),
		kmsKeyId: text("KMS key", "AWS's own key unless set."), ownerTag: text("Owner tag"), environmentTag: text("Environment tag") } },
	gcp_secret_manager: { type: "object", properties: {
		projectId: text("Project"), location: text("Location"), namespace: text("Namespace"), secretNamePrefix: text("Prefix") } },
	vault: { type: "object", properties: {
		address: text("Address", "https://vault.example"), namespace: text("Namespace"), mountPath: text("Mount path"), secretPathPrefix: text("Path prefix") } },
};

interface ProviderHealth {
	provider: string;
	status: string;
	message: string;
	warnings?: string[];
	backupGuidance?: string[];
}

export function Vaults() {
	const { at } = useHere();
	const { vaults, providers } = useVaults();
	const health = useQuery<{ providers: ProviderHealth[] }>(at("/secret-providers/health"), ["secrets"]);
	const [adding, setAdding] = useState(false);
	const [disabling, setDisabling] = useState<Vault | null>(null);

	if (vaults.loading) return <Loading />;
	return (
		<>
			<Problem error={vaults.error} />
			<Section title="Vaults" actions={<button type="button" class="button small" onClick={() => setAdding(true)}>New vault…</button>}>
				{vaults.data && (
					<Table caption="Vaults" rows={vaults.data} id={(v) => v.id} empty="No vault is set up: secrets are kept by the provider's own settings, below."
						columns={[
							{ title: "Name", main: true, sort: (v) => v.displayName, cell: (v) => <>{v.displayName}{v.isDefault && <> <State value="default" tone="quiet" /></>}</> },
							{ title: "Provider", wide: true, cell: (v) => providerName(providers.data, v.provider) },
							{ title: "State", cell: (v) => <State value={v.status} /> },
							{ title: "Health", cell: (v) => (v.healthStatus ? <State value={v.healthStatus} title={v.healthMessage ?? undefined} /> : <span class="dim">not asked</span>) },
							{ title: "Asked", wide: true, cell: (v) => <When at={v.healthCheckedAt} none="never" /> },
							{ title: "Actions", cell: (v) => <VaultActions vault={v} onDisable={() => setDisabling(v)} /> },
						]} />
				)}
			</Section>
			<Section title="Providers">
				<Problem error={health.error} />
				<ul class="list">
					{health.data?.providers.map((p) => (
						<li key={p.provider}>
							<State value={p.status} /> <strong>{providerName(providers.data, p.provider)}</strong> <span class="dim">{p.message}</span>
							{[...(p.warnings ?? []), ...(p.status === "ok" ? [] : (p.backupGuidance ?? []))].map((w) => <div key={w} class="hint">{w}</div>)}
						</li>
					))}
				</ul>
			</Section>
			{adding && <VaultDialog onClose={() => setAdding(false)} />}
			{disabling && (
				<Confirm title={`Disable “${disabling.displayName}”?`} label="Disable" danger onClose={() => setDisabling(null)} done="Disabled."
					run={() => api.delete(`/secret-provider-configs/${disabling.id}`)}>
					<p>Secrets that are kept there cannot be resolved until it is made ready again.</p>
				</Confirm>
			)}
		</>
	);
}

function VaultActions(props: { vault: Vault; onDisable: () => void }) {
	const { vault } = props;
	const path = `/secret-provider-configs/${vault.id}`;
	const usable = vault.status === "ready" || vault.status === "warning";

	return (
		<div class="actions">
			<Action label="Check" small run={async () => {
				const health = await api.post<{ status: string; message: string }>(`${path}/health`);

				toast(`${vault.displayName}: ${health.message}`, health.status === "error" ? "bad" : "good");
			}} />
			{usable && !vault.isDefault && <Action label="Make default" small run={() => api.post(`${path}/default`)} done="New secrets are kept there." />}
			{vault.status !== "disabled" && <button type="button" class="button small danger" onClick={props.onDisable}>Disable…</button>}
			{vault.status === "disabled" && <Action label="Enable" small run={() => api.patch(path, { status: "ready" })} done="Enabled." />}
		</div>
	);
}

function VaultDialog(props: { onClose: () => void }) {
	const { at } = useHere();
	const { providers } = useVaults();
	const [provider, setProvider] = useState("local_encrypted");
	const [name, setName] = useState("");
	const [config, setConfig] = useState<JsonObject>({});
	const [errors, setErrors] = useState<Record<string, string>>({});

	return (
		<Confirm title="New vault" label="Create vault" onClose={props.onClose} done={`Created “${name.trim()}”.`} disabled={!name.trim()}
			run={async () => {
				try {
					await api.post(at("/secret-provider-configs"), { provider, displayName: name.trim(), config });
				} catch (e) {
					setErrors(fieldErrors(e));
					throw e;
				}
			}}>
			<p>A vault says where a provider keeps things. Credentials do not belong in it: the daemon's own surroundings have them.</p>
			<SelectField label="Provider" value={provider} choices={(providers.data ?? []).map((p) => ({ value: p.id, label: p.label }))}
				onChange={(p) => {
					setProvider(p);
					setConfig({});
					setErrors({});
				}} />
			<TextField label="Name" value={name} onInput={setName} error={errors.displayName} required />
			<SchemaForm key={provider} schema={CONFIG[provider] ?? {}} value={config} onChange={setConfig} path="config" errors={errors} secrets={[]} />
		</Confirm>
	);
}
