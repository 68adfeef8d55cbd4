// Making an agent: what it runs, and where.
import { useState } from "preact/hooks";
import { api } from "../api";
import { useHere } from "../context";
import { refresh, useQuery } from "../live";
import type { Agent, Environment, JsonObject } from "../model";
import { navigate } from "../router";
import { Problem, Title } from "../ui/basic";
import { SelectField, TextField } from "../ui/field";
import { useForm } from "../ui/form";
import { toast } from "../ui/toast";
import { placeOf, placesOf } from "./environment-table";

const KINDS: [string, string, string][] = [
	["process", "A command", "Any program; what it prints is the log."],
	["claude_local", "Claude", "claude, which has to be installed where it works or is installed there by npm."],
	["codex_local", "Codex", "codex, with its own sign-in."],
	["gemini_local", "Gemini", "gemini, with its own sign-in."],
	["opencode_local", "OpenCode", "opencode, with its own sign-in."],
	["cursor", "Cursor", "cursor-agent, with its own sign-in."],
	["pi_local", "Pi", "pi, with its own sign-in."],
	["http", "A web hook", "An address that is asked for each run."],
];

/** A command line into its words; quotes keep blanks together. */
export function words(line: string): string[] {
	return [...line.matchAll(/"((?:[^"\\]|\\.)*)"|'([^']*)'|(\S+)/g)].map((m) => m[1]?.replace(/\\(.)/g, "$1") ?? m[2] ?? m[3] ?? "");
}

export function AgentForm() {
	const { at, company, to } = useHere();
	const environments = useQuery<Environment[]>(at("/environments"), ["environments"]);
	const standard = environments.data?.find((e) => e.id === company.defaultEnvironmentId);
	const [name, setName] = useState("");
	const [kind, setKind] = useState("process");
	const [command, setCommand] = useState("");
	const [args, setArgs] = useState("");
	const [script, setScript] = useState("");
	const [cwd, setCwd] = useState("");
	const [url, setUrl] = useState("");
	const [model, setModel] = useState("");
	const [environment, setEnvironment] = useState("");
	const { errors, error, busy, submit } = useForm();

	function config(): JsonObject {
		const c: JsonObject = {};

		if (kind === "process") {
			if (script.trim()) Object.assign(c, { command: "/bin/sh", args: ["-c", script] });
			else Object.assign(c, { command: command.trim(), args: words(args) });
		} else if (kind === "http") {
			c.url = url.trim();
		} else if (model.trim()) {
			c.model = model.trim();
		}
		if (cwd.trim() && kind !== "http") c.cwd = cwd.trim();
		return c;
	}

	const save = (e: Event) => submit(e, {
		name: !name.trim() && "A name is needed.",
		command: kind === "process" && !command.trim() && !script.trim() && "A command or a script is needed.",
		url: kind === "http" && !url.trim() && "An address is needed.",
	}, async () => {
		const agent = await api.post<Agent>(at("/agents"), {
			name: name.trim(), adapterType: kind, adapterConfig: config(), ...(environment && kind !== "http" ? { defaultEnvironmentId: environment } : {}),
		});

		toast(`Created “${agent.name}”.`);
		refresh(["agents"]);
		navigate(to(`/agents/${agent.id}`));
	});

	return (
		<>
			<Title above={<a href={to("/agents")}>Agents</a>}>New agent</Title>
			<form class="form" noValidate onSubmit={save}>
				<TextField label="Name" value={name} onInput={setName} error={errors.name} required />
				<SelectField label="Kind" value={kind} onChange={setKind} error={errors.adapterType} help={KINDS.find(([k]) => k === kind)?.[2]}
					choices={KINDS.map(([value, label]) => ({ value, label }))} />
				{kind === "process" && (
					<>
						<TextField label="Command" value={command} onInput={setCommand} error={errors.command} placeholder="node" />
						<TextField label="Arguments" value={args} onInput={setArgs} placeholder={`agent.js --name "two words"`} help="Separated by blanks; quotes keep words together." />
						<TextField label="Or a script" value={script} onInput={setScript} lines={4} help="Run by /bin/sh instead of the command." />
					</>
				)}
				{kind === "http" && <TextField label="Address" value={url} onInput={setUrl} error={errors.url} placeholder="https://…" required />}
				{kind !== "process" && kind !== "http" && <TextField label="Model" value={model} onInput={setModel} help="Optional; the program's own choice otherwise." />}
				{kind !== "http" && <TextField label="Directory" value={cwd} onInput={setCwd} placeholder="/home/ada/project"
					help="Where it works. In an environment elsewhere it is brought there and back." />}
				{kind !== "http" && <SelectField label="Environment" value={environment} onChange={setEnvironment} error={errors.defaultEnvironmentId}
					choices={[{ value: "", label: `The company's default: ${standard ? placeOf(standard) : "none, it will not run"}` }, ...placesOf(environments.data)]} />}
				<Problem error={error} />
				<div class="form-foot">
					<button type="submit" class="button primary" disabled={busy} aria-busy={busy}>Create agent</button>
				</div>
			</form>
		</>
	);
}
