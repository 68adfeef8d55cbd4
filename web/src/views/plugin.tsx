// One plugin, or installing one: its state, rights, log, settings.
import { useState } from "preact/hooks";
import { api, fieldErrors } from "../api";
import { useHere } from "../context";
import { SchemaForm } from "../form/schema-form";
import { duration } from "../format";
import { useQuery } from "../live";
import type { JsonObject, Plugin, Schema } from "../model";
import { navigate } from "../router";
import { Action, Empty, Facts, Loading, Problem, Section, State, Title, When } from "../ui/basic";
import { Confirm, Dialog } from "../ui/dialog";
import { CheckField, SelectField, TextField } from "../ui/field";
import { Table } from "../ui/table";
import { Tabs } from "../ui/tabs";
import { toast } from "../ui/toast";
import { OperationView } from "./plugin-operation";
import { pluginName } from "./plugins";

export function PluginView(props: { id: string }) {
	return props.id === "install" ? <Install /> : <Existing id={props.id} />;
}

/* Installing */

function Install() {
	const { to } = useHere();
	const [source, setSource] = useState("npm");
	const [name, setName] = useState("");
	const [version, setVersion] = useState("");
	const [missing, setMissing] = useState<string>();
	const [error, setError] = useState<unknown>(null);
	const [operation, setOperation] = useState<string | null>(null);
	const [over, setOver] = useState(false);
	const local = source === "directory";

	async function start(e: Event): Promise<void> {
		e.preventDefault();
		setError(null);
		setMissing(name.trim() ? undefined : local ? "A directory is needed." : "A name is needed.");
		if (!name.trim()) return;
		try {
			const { operationId } = await api.post<{ operationId: string }>("/plugins/install", {
				packageName: name.trim(), wait: false, ...(local ? { isLocalPath: true } : version.trim() ? { version: version.trim() } : {}),
			});

			setOver(false);
			setOperation(operationId);
		} catch (problem) {
			setError(problem);
		}
	}

	return (
		<>
			<Title above={<a href={to("/plugins")}>Plugins</a>} note="Nothing of a package is run while it is installed. Its worker is confined when it runs.">Install a plugin</Title>
			<form class="form" noValidate onSubmit={(e) => void start(e)}>
				<SelectField label="From" value={source} onChange={setSource} choices={[{ value: "npm", label: "npm" }, { value: "directory", label: "A directory of the daemon's machine" }]} />
				<TextField label={local ? "Directory" : "Package"} value={name} onInput={setName} error={missing} required placeholder={local ? "/home/ada/plugin" : "@acme/plugin-box"} />
				{!local && <TextField label="Version" value={version} onInput={setVersion} help="The newest, unless one is named." />}
				<Problem error={error} />
				<div class="form-foot">
					<button type="submit" class="button primary" disabled={operation !== null && !over}>Install</button>
				</div>
			</form>
			{operation && (
				<Section title="Progress">
					<OperationView key={operation} id={operation} onDone={({ pluginId, error: failed }) => {
						setOver(true);
						if (failed || !pluginId) return;
						toast("Installed.");
						navigate(to(`/plugins/${pluginId}`));
					}} />
				</Section>
			)}
		</>
	);
}

/* One that is there */

function Existing(props: { id: string }) {
	const { to } = useHere();
	const { data: plugin, error, loading } = useQuery<Plugin>(`/plugins/${props.id}`, ["plugins"]);
	const above = <a href={to("/plugins")}>Plugins</a>;

	if (loading) return <Loading />;
	if (!plugin) return (<><Title above={above}>Plugin</Title><Problem error={error} /></>);
	const description = plugin.manifestJson?.description;

	return (
		<>
			<Title above={above} actions={<Actions plugin={plugin} />} note={typeof description === "string" ? description : undefined}>{pluginName(plugin)}</Title>
			<Problem error={error} />
			<Facts rows={[
				["State", <State value={plugin.status} />], ["Version", plugin.version], ["Package", <code>{plugin.packageName}</code>],
				["Author", String(plugin.manifestJson?.author ?? "–")], ["Key", <code>{plugin.pluginKey}</code>],
				["From", plugin.packagePath ? <code>{plugin.packagePath}</code> : "npm"], ["Installed", <When at={plugin.installedAt} />],
			]} />
			{plugin.pendingUpgrade && <Approval plugin={plugin} />}
			{plugin.lastError && <Problem error={plugin.lastError} />}
			<Tabs label="About the plugin" tabs={[
				{ id: "status", title: "Status", view: () => <Status plugin={plugin} /> },
				{ id: "rights", title: "Rights", view: () => <Rights plugin={plugin} /> },
				{ id: "settings", title: "Settings", view: () => <Settings plugin={plugin} /> },
				{ id: "logs", title: "Log", view: () => <Logs plugin={plugin} /> },
			]} />
		</>
	);
}

function Actions(props: { plugin: Plugin }) {
	const { plugin } = props;
	const { to } = useHere();
	const path = `/plugins/${plugin.id}`;
	const [asking, setAsking] = useState<"upgrade" | "uninstall" | null>(null);
	const [purge, setPurge] = useState(false);

	return (
		<>
			{plugin.status === "ready"
				? <Action label="Disable" run={() => api.post(`${path}/disable`)} done="Disabled." />
				: <Action label="Enable" run={() => api.post(`${path}/enable`)} done="Enabled." />}
			<button type="button" class="button" onClick={() => setAsking("upgrade")}>Upgrade…</button>
			<button type="button" class="button danger" onClick={() => setAsking("uninstall")}>Uninstall…</button>
			{asking === "upgrade" && <UpgradeDialog plugin={plugin} onClose={() => setAsking(null)} />}
			{asking === "uninstall" && (
				<Confirm title={`Uninstall “${pluginName(plugin)}”?`} label="Uninstall" danger onClose={() => setAsking(null)} done="Uninstalled."
					run={async () => {
						await api.delete(`${path}${purge ? "?purge=true" : ""}`);
						navigate(to("/plugins"));
					}}>
					<p>Environments of its kinds cannot be used until it is installed again.</p>
					<CheckField label="Also delete its settings and data" checked={purge} onChange={setPurge} />
				</Confirm>
			)}
		</>
	);
}

function UpgradeDialog(props: { plugin: Plugin; onClose: () => void }) {
	const [version, setVersion] = useState("");
	const [operation, setOperation] = useState<string | null>(null);
	const [over, setOver] = useState(false);
	const [error, setError] = useState<unknown>(null);

	async function start(): Promise<void> {
		const { operationId } = await api.post<{ operationId: string }>(`/plugins/${props.plugin.id}/upgrade`, { wait: false, ...(version.trim() ? { version: version.trim() } : {}) });

		setOver(false);
		setOperation(operationId);
	}

	return (
		<Dialog title={`Upgrade “${pluginName(props.plugin)}”`} onClose={props.onClose}
			footer={
				<>
					<button type="button" class="button" onClick={props.onClose}>Close</button>
					<Action label="Upgrade" kind="primary" disabled={operation !== null && !over} run={start} onError={setError} />
				</>
			}>
			<p>The version in use goes on until the new one works. One that wants more rights waits until you approve it.</p>
			<TextField label="Version" value={version} onInput={setVersion} help="The newest, unless one is named." />
			<Problem error={error} />
			{operation && <OperationView key={operation} id={operation} onDone={({ error: failed }) => {
				setOver(true);
				if (failed) return;
				props.onClose();
			}} />}
		</Dialog>
	);
}

function Approval(props: { plugin: Plugin }) {
	const { plugin } = props;
	const { version, addedCapabilities } = plugin.pendingUpgrade as NonNullable<Plugin["pendingUpgrade"]>;

	return (
		<div class="card approval">
			<h2>Version {version} wants more rights</h2>
			<ul>{(addedCapabilities ?? []).map((c) => <li key={c}><code>{c}</code> <span class="dim">{RIGHTS[c]}</span></li>)}</ul>
			<p>Version {plugin.version} goes on until you decide.</p>
			<div class="actions">
				<Action label="Approve" kind="primary" run={() => api.post(`/plugins/${plugin.id}/approve`)} done={`Version ${version} is in use.`} />
				<Action label="Reject" run={() => api.post(`/plugins/${plugin.id}/approve`, { reject: true })} done={`Version ${version} was thrown away.`} />
			</div>
		</div>
	);
}

const RIGHTS: Record<string, string> = {
	"environment.drivers.register": "provides environments",
	"http.outbound": "reaches the network",
	"secrets.read-ref": "gets values of secrets that its settings name",
	"issues.read": "reads issues",
	"issues.create": "writes issues",
	"events.subscribe": "hears what happens",
	"plugin.state.read": "reads what it remembered",
	"plugin.state.write": "remembers things",
};

function Rights(props: { plugin: Plugin }) {
	const rights = (props.plugin.manifestJson?.capabilities ?? []) as string[];

	if (rights.length === 0) return <Empty>It asks for no rights.</Empty>;
	return <ul class="list">{rights.map((c) => <li key={c}><code>{c}</code> <span class="dim">{RIGHTS[c]}</span></li>)}</ul>;
}

/* Status */

interface Health {
	healthy: boolean;
	checks: { name: string; passed: boolean; message?: string }[];
}

interface Dashboard {
	worker: { status: string; pid: number | null; uptime: number | null; totalCrashes: number; pendingRequests: number; lastCrashAt: string | null; nextRestartAt: string | null } | null;
}

function Status(props: { plugin: Plugin }) {
	const health = useQuery<Health>(`/plugins/${props.plugin.id}/health`, ["plugins"]);
	const dashboard = useQuery<Dashboard>(`/plugins/${props.plugin.id}/dashboard`, ["plugins"]);
	const worker = dashboard.data?.worker;

	return (
		<>
			<Problem error={health.error ?? dashboard.error} />
			{worker && (
				<Facts rows={[
					["Worker", <State value={worker.status} />], ["Process", worker.pid ?? "–"], ["Up for", worker.uptime ? duration(worker.uptime) : "–"],
					["Under way", worker.pendingRequests], ["Crashes", worker.totalCrashes], ["Last crash", <When at={worker.lastCrashAt} none="never" />],
				]} />
			)}
			<ul class="list">
				{health.data?.checks.map((c) => (
					<li key={c.name}><State value={c.passed ? "ok" : "failed"} /> <strong>{c.name.replaceAll("_", " ")}</strong> <span class="dim">{c.message}</span></li>
				))}
			</ul>
		</>
	);
}

/* Settings */

interface Config {
	configJson: JsonObject;
}

function Settings(props: { plugin: Plugin }) {
	const { plugin } = props;
	const schema = plugin.manifestJson?.instanceConfigSchema as unknown as Schema | undefined;
	const { data, error, loading } = useQuery<Config | null>(schema ? `/plugins/${plugin.id}/config` : null, ["plugins"]);

	if (!schema?.properties) return <Empty>It has no settings of its own. What it needs is asked for with each environment.</Empty>;
	if (loading) return <Loading />;
	if (error) return <Problem error={error} />;
	return <Editor plugin={plugin} schema={schema} config={data?.configJson ?? {}} />;
}

function Editor(props: { plugin: Plugin; schema: Schema; config: JsonObject }) {
	const [form, setForm] = useState(props.config);
	const [errors, setErrors] = useState<Record<string, string>>({});
	const [error, setError] = useState<unknown>(null);
	const path = `/plugins/${props.plugin.id}/config`;
	const failed = (e: unknown) => {
		setErrors(fieldErrors(e));
		setError(e);
	};

	return (
		<div class="form">
			<SchemaForm schema={props.schema} value={form} onChange={setForm} path="config" errors={errors} secrets={[]} />
			<Problem error={error} />
			<div class="form-foot">
				<Action label="Save" kind="primary" done="Saved." onError={failed} run={async () => {
					setError(null);
					await api.post(path, { configJson: form });
				}} />
				<Action label="Test" onError={failed} run={async () => {
					setError(null);
					const tried = await api.post<{ valid: boolean; message?: string }>(`${path}/test`, { configJson: form });

					toast(tried.message ?? (tried.valid ? "It works." : "It does not work."), tried.valid ? "good" : "bad");
				}} />
			</div>
		</div>
	);
}

/* Log */

interface LogLine {
	id: string;
	level: string;
	message: string;
	createdAt: string;
}

function Logs(props: { plugin: Plugin }) {
	const [level, setLevel] = useState("");
	const { data, error, loading, reload } = useQuery<LogLine[]>(`/plugins/${props.plugin.id}/logs?limit=500${level ? `&level=${level}` : ""}`, ["plugins"]);

	return (
		<>
			<div class="filters">
				<SelectField label="Level" value={level} onChange={setLevel} choices={["", "debug", "info", "warn", "error"].map((l) => ({ value: l, label: l || "all" }))} />
				<button type="button" class="button" onClick={reload}>Look again</button>
			</div>
			<Problem error={error} />
			{loading && <Loading />}
			{data && (
				<Table caption="Log" rows={data} id={(l) => l.id} empty="It has not said anything."
					columns={[
						{ title: "Message", main: true, cell: (l) => <span class="prose">{l.message}</span> },
						{ title: "Level", cell: (l) => <State value={l.level} tone={l.level === "error" ? "bad" : l.level === "warn" ? "warn" : "quiet"} /> },
						{ title: "When", cell: (l) => <When at={l.createdAt} /> },
					]} />
			)}
		</>
	);
}
