// One secret: who uses it, who was given it, a new value.
import { useState } from "preact/hooks";
import { api } from "../api";
import { useHere } from "../context";
import { refresh, useQuery } from "../live";
import type { Secret } from "../model";
import { navigate } from "../router";
import { Action, Facts, Loading, Problem, State, Title, When } from "../ui/basic";
import { Confirm } from "../ui/dialog";
import { CheckField, SelectField, TextField } from "../ui/field";
import { useForm } from "../ui/form";
import { Table } from "../ui/table";
import { Tabs } from "../ui/tabs";
import { toast } from "../ui/toast";
import { providerName, useVaults } from "./secrets";

export function SecretView(props: { id: string }) {
	return props.id === "new" ? <SecretForm /> : <Existing id={props.id} />;
}

/* Making one */

function SecretForm() {
	const { at, to } = useHere();
	const { vaults, providers } = useVaults();
	const [name, setName] = useState("");
	const [description, setDescription] = useState("");
	const [place, setPlace] = useState("");
	const [external, setExternal] = useState(false);
	const [value, setValue] = useState("");
	const [ref, setRef] = useState("");
	const { errors, error, busy, submit } = useForm();
	const vault = vaults.data?.find((v) => v.id === place);
	const provider = providers.data?.find((p) => p.id === (vault?.provider ?? place));
	const asReference = Boolean(provider?.supportsExternalReferences && (external || provider.requiresExternalRef));

	const save = (e: Event) => submit(e, {
		name: !name.trim() && "A name is needed.",
		value: !asReference && !value && "A value is needed.",
		externalRef: asReference && !ref.trim() && "A reference is needed.",
	}, async () => {
		const secret = await api.post<Secret>(at("/secrets"), {
			name: name.trim(), description: description.trim() || null,
			...(vault ? { provider: vault.provider, providerConfigId: vault.id } : place ? { provider: place } : {}),
			...(asReference ? { managedMode: "external_reference", externalRef: ref.trim() } : { value }),
		});

		setValue("");
		toast(`Saved “${secret.name}”. Its value is not shown again.`);
		refresh(["secrets"]);
		navigate(to(`/secrets/${secret.id}`));
	});

	const places = [
		{ value: "", label: "The default" },
		...(vaults.data ?? []).filter((v) => v.status === "ready" || v.status === "warning").map((v) => ({ value: v.id, label: v.displayName })),
		...(providers.data ?? []).filter((p) => p.configured).map((p) => ({ value: p.id, label: p.label })),
	];

	return (
		<>
			<Title above={<a href={to("/secrets")}>Secrets</a>}>New secret</Title>
			<form class="form" noValidate onSubmit={save}>
				<TextField label="Name" value={name} onInput={setName} error={errors.name} required />
				<TextField label="Description" value={description} onInput={setDescription} error={errors.description} />
				<SelectField label="Kept in" value={place} onChange={setPlace} choices={places} error={errors.providerConfigId ?? errors.provider} />
				{provider?.supportsExternalReferences && !provider.requiresExternalRef && (
					<CheckField label="It is there already" checked={external} onChange={setExternal} help="Name what the vault holds instead of sending a value." />
				)}
				{asReference
					? <TextField label="Reference" value={ref} onInput={setRef} error={errors.externalRef} required help="As the vault calls it, for example its ARN." />
					: <TextField label="Value" type="password" value={value} onInput={setValue} error={errors.value} required autoComplete="new-password" help="It is sealed when it is saved, and never shown again." />}
				<Problem error={error} />
				<div class="form-foot">
					<button type="submit" class="button primary" disabled={busy} aria-busy={busy}>Create secret</button>
				</div>
			</form>
		</>
	);
}

/* One that is there */

function Existing(props: { id: string }) {
	const { to } = useHere();
	const { data: secret, error, loading } = useQuery<Secret>(`/secrets/${props.id}`, ["secrets"]);
	const { vaults, providers } = useVaults();
	const above = <a href={to("/secrets")}>Secrets</a>;

	if (loading) return <Loading />;
	if (!secret) return (<><Title above={above}>Secret</Title><Problem error={error} /></>);
	return (
		<>
			<Title above={above} actions={<Actions secret={secret} />} note={secret.description ?? undefined}>{secret.name}</Title>
			<Problem error={error} />
			<Facts rows={[
				["State", <State value={secret.status} />], ["Key", <code>{secret.key}</code>],
				["Kept in", vaults.data?.find((v) => v.id === secret.providerConfigId)?.displayName ?? providerName(providers.data, secret.provider)],
				["Reference", secret.externalRef ? <code>{secret.externalRef}</code> : "none, it is ours"],
				["Version", secret.latestVersion], ["Rotated", <When at={secret.lastRotatedAt} none="never" />],
				["Last used", <When at={secret.lastResolvedAt} none="never" />], ["Id", <code>{secret.id}</code>],
			]} />
			<Tabs label="About the secret" tabs={[
				{ id: "usage", title: "Used by", view: () => <Usage secret={secret} /> },
				{ id: "access", title: "Access", view: () => <Access secret={secret} /> },
				{ id: "versions", title: "Versions", view: () => <Versions secret={secret} /> },
			]} />
		</>
	);
}

function Actions(props: { secret: Secret }) {
	const { secret } = props;
	const { to } = useHere();
	const [asking, setAsking] = useState<"rotate" | "delete" | null>(null);
	const [force, setForce] = useState(false);

	return (
		<>
			{secret.status === "active" && <button type="button" class="button primary" onClick={() => setAsking("rotate")}>Rotate…</button>}
			{secret.status === "active" && <Action label="Disable" run={() => api.patch(`/secrets/${secret.id}`, { status: "disabled" })} done="Nobody gets it until it is active again." />}
			{secret.status === "disabled" && <Action label="Activate" run={() => api.patch(`/secrets/${secret.id}`, { status: "active" })} done="It is active again." />}
			<button type="button" class="button danger" onClick={() => setAsking("delete")}>Delete…</button>
			{asking === "rotate" && <RotateDialog secret={secret} onClose={() => setAsking(null)} />}
			{asking === "delete" && (
				<Confirm title={`Delete “${secret.name}”?`} label="Delete" danger onClose={() => setAsking(null)} done={`Deleted “${secret.name}”.`}
					run={async () => {
						await api.delete(`/secrets/${secret.id}${force ? "?force=true" : ""}`);
						navigate(to("/secrets"));
					}}>
					<p>The value is gone for good{secret.managedMode === "external_reference" ? " from here; the vault keeps its own" : ""}.</p>
					{(secret.referenceCount ?? 0) > 0 && (
						<CheckField label={`Also though it is used in ${secret.referenceCount} places`} checked={force} onChange={setForce} help="They fail until they are given another." />
					)}
				</Confirm>
			)}
		</>
	);
}

function RotateDialog(props: { secret: Secret; onClose: () => void }) {
	const { secret } = props;
	const external = secret.managedMode === "external_reference";
	const [value, setValue] = useState("");

	return (
		<Confirm title={`Rotate “${secret.name}”?`} label="Rotate" onClose={props.onClose} done="Rotated. What starts from now on gets the new value."
			disabled={!value.trim()} run={() => api.post(`/secrets/${secret.id}/rotate`, external ? { externalRef: value.trim() } : { value })}>
			<p>Version {secret.latestVersion} is replaced by version {(secret.latestVersion ?? 0) + 1}. What runs already keeps what it was given.</p>
			{external ? <TextField label="New reference" value={value} onInput={setValue} required />
				: <TextField label="New value" type="password" autoComplete="new-password" value={value} onInput={setValue} required help="It is not shown again." />}
		</Confirm>
	);
}

interface Binding {
	id: string;
	configPath: string;
	versionSelector: string;
	target: { type: string; id: string; label: string; status: string | null };
}

const SECTION: Record<string, string> = { agent: "agents", environment: "environments", issue: "issues", run: "runs", plugin: "plugins" };

function Usage(props: { secret: Secret }) {
	const { to } = useHere();
	const { data, error, loading } = useQuery<{ bindings: Binding[] }>(`/secrets/${props.secret.id}/usage`, ["secrets", "agents", "environments"]);

	if (loading) return <Loading />;
	return (
		<>
			<Problem error={error} />
			{data && (
				<Table caption="Usage" rows={data.bindings} id={(b) => b.id} empty="Nobody uses it. Agents and environments name secrets in their settings."
					columns={[
						{ title: "Who", main: true, cell: (b) => (SECTION[b.target.type] ? <a href={to(`/${SECTION[b.target.type]}/${b.target.id}`)}>{b.target.label}</a> : b.target.label) },
						{ title: "Kind", cell: (b) => b.target.type },
						{ title: "As", cell: (b) => <code>{b.configPath}</code> },
						{ title: "Version", cell: (b) => b.versionSelector },
					]} />
			)}
		</>
	);
}

interface AccessEvent {
	id: string;
	version: number | null;
	actorType: string;
	actorId: string | null;
	consumerType: string;
	consumerId: string;
	configPath: string | null;
	heartbeatRunId: string | null;
	outcome: string;
	errorCode: string | null;
	createdAt: string;
}

function Access(props: { secret: Secret }) {
	const { to } = useHere();
	const { data, error, loading } = useQuery<AccessEvent[]>(`/secrets/${props.secret.id}/access-events`, ["secrets", "runs"]);

	if (loading) return <Loading />;
	return (
		<>
			<Problem error={error} />
			{data && (
				<Table caption="Access" rows={data} id={(e) => e.id} empty="Nobody was given it yet."
					columns={[
						{ title: "When", main: true, cell: (e) => <When at={e.createdAt} /> },
						{ title: "Outcome", cell: (e) => <State value={e.outcome} tone={e.outcome === "success" ? "good" : "bad"} title={e.errorCode ?? undefined} /> },
						{ title: "For", cell: (e) => (SECTION[e.consumerType] ? <a href={to(`/${SECTION[e.consumerType]}/${e.consumerId}`)}>{e.consumerType} {e.consumerId.slice(-6)}</a> : e.consumerType) },
						{ title: "As", wide: true, cell: (e) => <code>{e.configPath ?? ""}</code> },
						{ title: "Version", end: true, wide: true, cell: (e) => e.version ?? "–" },
						{ title: "Run", cell: (e) => (e.heartbeatRunId ? <a href={to(`/runs/${e.heartbeatRunId}`)}>{e.heartbeatRunId.slice(-6)}</a> : <span class="dim">–</span>) },
						{ title: "Problem", wide: true, cell: (e) => e.errorCode ?? "" },
					]} />
			)}
		</>
	);
}

interface Version {
	id: string;
	version: number;
	status: string;
	createdAt: string;
}

function Versions(props: { secret: Secret }) {
	const { data, error, loading } = useQuery<Version[]>(`/secrets/${props.secret.id}/versions`, ["secrets"]);

	if (loading) return <Loading />;
	return (
		<>
			<Problem error={error} />
			{data && (
				<Table caption="Versions" rows={data} id={(v) => v.id} empty="There is no version."
					columns={[
						{ title: "Version", main: true, cell: (v) => v.version },
						{ title: "State", cell: (v) => <State value={v.status} tone={v.status === "current" ? "good" : "quiet"} /> },
						{ title: "Made", cell: (v) => <When at={v.createdAt} /> },
					]} />
			)}
		</>
	);
}
