// Making and changing an environment.
import { useState } from "preact/hooks";
import { api, ApiError, fieldErrors } from "../api";
import { useHere } from "../context";
import { fromForm, kindOfEnvironment, kindsOf, toForm, type EnvironmentKind } from "../form/kinds";
import { check, type Errors } from "../form/schema";
import { SchemaForm } from "../form/schema-form";
import { refresh, useQuery } from "../live";
import type { Capabilities, Environment, JsonObject, Secret } from "../model";
import { navigate } from "../router";
import { Loading, Problem } from "../ui/basic";
import { SelectField, TextField } from "../ui/field";
import { toast } from "../ui/toast";
import { ProbeResult, type Probe } from "./probe-result";

export function EnvironmentForm(props: { environment?: Environment }) {
	const { at } = useHere();
	const capabilities = useQuery<Capabilities>(at("/environments/capabilities"), ["plugins"]);
	const secrets = useQuery<Secret[]>(at("/secrets"), ["secrets"]);
	const [version, setVersion] = useState(0);
	const others = useQuery<Environment[]>(props.environment ? null : at("/environments"));

	if (capabilities.error) return <Problem error={capabilities.error} />;
	// Who may not see secrets can still enter values.
	if (!capabilities.data || secrets.loading || others.loading) return <Loading />;
	// There is one machine that is this one.
	const kinds = kindsOf(capabilities.data).filter((k) => k.id !== "local" || !others.data?.some((e) => e.driver === "local"));

	return <Editor key={version} onReload={() => setVersion(version + 1)} environment={props.environment} kinds={kinds}
		secrets={secrets.data?.filter((s) => s.status === "active") ?? []} />;
}

interface EditorProps {
	/** Begin again with what the environment is now. */
	onReload: () => void;
	environment?: Environment;
	kinds: EnvironmentKind[];
	secrets: Secret[];
}

/** Put the focus on the first field that has something wrong with it. */
function focusError(): void {
	requestAnimationFrame(() => document.querySelector<HTMLElement>("main [aria-invalid]")?.focus());
}

function Editor(props: EditorProps) {
	const { environment } = props;
	const { at, to } = useHere();
	const [kind, setKind] = useState<EnvironmentKind>(() =>
		environment ? kindOfEnvironment(environment, props.kinds) : (props.kinds[0] as EnvironmentKind));
	const [seen, setSeen] = useState(environment?.updatedAt);
	const [name, setName] = useState(environment?.name ?? "");
	const [description, setDescription] = useState(environment?.description ?? "");
	const [form, setForm] = useState<JsonObject>(() => toForm(kind, environment?.config ?? {}));
	const [errors, setErrors] = useState<Errors>({});
	const [error, setError] = useState<unknown>(null);
	const [probe, setProbe] = useState<Probe | null>(null);
	const [busy, setBusy] = useState<"save" | "test" | null>(null);

	/** What is plainly wrong. True when nothing is. */
	function looksRight(): boolean {
		const found: Errors = {};

		check(kind.schema, form, kind.path, found);
		if (name.trim() === "") found.name = "A name is needed.";
		setErrors(found);
		if (Object.keys(found).length > 0) focusError();
		return Object.keys(found).length === 0;
	}

	async function attempt(what: "save" | "test", fn: () => Promise<void>) {
		setError(null);
		setProbe(null);
		if (!looksRight()) return;
		setBusy(what);
		try {
			await fn();
		} catch (e) {
			const found = fieldErrors(e);

			if (kind.driver === "ssh" && found["config.privateKeySecretRef"]) found["config.privateKey"] = found["config.privateKeySecretRef"];
			setErrors(found);
			setError(e);
			if (Object.keys(found).length > 0) focusError();
		}
		setBusy(null);
	}

	const body = () => ({ name: name.trim(), description: description.trim() || null, config: fromForm(kind, form) });

	const save = () => attempt("save", async () => {
		const saved = environment
			? await api.patch<Environment>(`/environments/${environment.id}`, { ...body(), replaceConfig: true })
			: await api.post<Environment>(at("/environments"), { ...body(), driver: kind.driver });

		toast(environment ? `Saved “${saved.name}”.` : `Created “${saved.name}”.`);
		if (environment) {
			setForm(toForm(kind, saved.config));
			setSeen(saved.updatedAt);
		}
		refresh(["environments", "secrets"]);
		navigate(to(`/environments/${saved.id}${environment ? "?tab=settings" : ""}`), environment !== undefined);
	});
	const test = () => attempt("test", async () => {
		setProbe(await api.post<Probe>(at("/environments/probe-config"), { name: name.trim(), driver: kind.driver, config: fromForm(kind, form) }));
	});

	return (
		<form class="form" noValidate
			onSubmit={(e) => {
				e.preventDefault();
				void save();
			}}>
			{environment && busy === null && Date.parse(environment.updatedAt) > Date.parse(seen ?? "") && (
				<p class="hint" role="status">
					Somebody has changed it since you began; saving would undo that.{" "}
					<button type="button" class="link" onClick={props.onReload}>Show what it is now</button>
				</p>
			)}
			{!environment && (
				<SelectField label="Kind" value={kind.id} help={kind.description && kind.isolation ? `${kind.description} It is ${kind.isolation}.` : kind.description} choices={props.kinds.map((k) => ({ value: k.id, label: k.title }))}
					onChange={(id) => {
						setKind(props.kinds.find((k) => k.id === id) ?? kind);
						setForm({});
						setErrors({});
						setProbe(null);
						setError(null);
					}} />
			)}
			<TextField label="Name" value={name} onInput={setName} error={errors.name} required />
			<TextField label="Description" value={description} onInput={setDescription} error={errors.description} />
			<SchemaForm key={kind.id} schema={kind.schema} value={form} onChange={setForm} path={kind.path} errors={errors} secrets={props.secrets}
				hide={["provider"]} fold />
			<Problem error={error} />
			{error instanceof ApiError && <Rejections details={error.details} />}
			{probe && <ProbeResult probe={probe} />}
			<div class="form-foot">
				<button type="submit" class="button primary" disabled={busy !== null} aria-busy={busy === "save"}>
					{environment ? "Save" : "Create environment"}
				</button>
				<button type="button" class="button" disabled={busy !== null} aria-busy={busy === "test"} onClick={() => void test()}>
					{environment ? "Test these settings" : "Test before creating"}
				</button>
				{busy === "test" && <span role="status" class="dim">Testing…</span>}
			</div>
		</form>
	);
}

/** A provider's own words, where it has more than one. */
function Rejections(props: { details: unknown }) {
	const { errors = [], warnings = [] } = (props.details ?? {}) as { errors?: string[]; warnings?: string[] };

	if (errors.length < 2 && warnings.length === 0) return null;
	return (
		<ul class="rejections">
			{errors.map((e) => <li key={e}>{String(e)}</li>)}
			{warnings.map((w) => <li key={w} class="dim">{String(w)}</li>)}
		</ul>
	);
}
