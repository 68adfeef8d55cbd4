// A form made from a JSON Schema. Members that nobody touched are not sent, so that the provider's defaults stay its own;
// they are shown as such.
import { useId, useState } from "preact/hooks";
import type { Json, JsonObject, Schema, Secret } from "../model";
import { CheckField, Field, SelectField, TextField } from "../ui/field";
import { blank, choicesOf, isObject, kindOf, titleOf, Unread, type Errors } from "./schema";
import { SecretField } from "./secret-field";

interface Common {
	errors: Errors;
	secrets: Secret[];
}

interface MemberProps extends Common {
	schema: Schema;
	value: Json | undefined;
	onChange: (value: Json | undefined) => void;
	path: string;
	label: string;
	required: boolean;
}

export interface SchemaFormProps extends Common {
	schema: Schema;
	value: JsonObject;
	onChange: (value: JsonObject) => void;
	path: string;
	/** Members that are shown elsewhere. */
	hide?: string[];
	/** Put what is optional behind a heading, where there is much of it. */
	fold?: boolean;
}

const MANY = 8;

/** The members of an object. */
export function SchemaForm(props: SchemaFormProps) {
	const members = Object.entries(props.schema.properties ?? {}).filter(([key]) => !props.hide?.includes(key));

	function change(key: string, value: Json | undefined) {
		const next = { ...props.value };

		if (value === undefined) delete next[key];
		else next[key] = value;
		props.onChange(next);
	}

	const isRequired = (key: string) => props.schema.required?.includes(key) ?? false;
	const draw = ([key, schema]: [string, Schema]) => (
		<Member key={key} schema={schema} value={props.value[key]} onChange={(v) => change(key, v)} errors={props.errors}
			secrets={props.secrets} path={props.path ? `${props.path}.${key}` : key} label={titleOf(key, schema)} required={isRequired(key)} />
	);
	const optional = members.filter(([key]) => !isRequired(key));

	if (!props.fold || optional.length <= MANY) return <>{members.map(draw)}</>;
	// What is wrong must be seen.
	const wrong = Object.keys(props.errors).some((path) => path.startsWith(`${props.path}.`));

	return (
		<>
			{members.filter(([key]) => isRequired(key)).map(draw)}
			<details class="fold" open={wrong || Object.keys(props.value).some((key) => key in (props.schema.properties ?? {}) && !isRequired(key))}>
				<summary>Settings <span class="dim">({optional.length}, all optional)</span></summary>
				{optional.map(draw)}
			</details>
		</>
	);
}

function defaultText(s: Schema): string | undefined {
	if (s.default === undefined || s.default === null) return undefined;
	return typeof s.default === "object" ? JSON.stringify(s.default) : String(s.default);
}

function Member(props: MemberProps) {
	switch (kindOf(props.schema)) {
		case "choice":
			return <ChoiceMember {...props} />;
		case "boolean":
			return <BooleanMember {...props} />;
		case "number":
			return <NumberMember {...props} />;
		case "secret":
			return <SecretMember {...props} />;
		case "object":
			return <ObjectMember {...props} />;
		case "map":
			return <MapMember {...props} />;
		case "list":
			return <ListMember {...props} />;
		case "json":
			return <JsonMember {...props} />;
		default:
			return <TextMember {...props} />;
	}
}

function common(props: MemberProps) {
	return { label: props.label, help: props.schema.description, error: props.errors[props.path], required: props.required };
}

function hintOf(s: Schema): string | undefined {
	const value = defaultText(s);

	if (value !== undefined) return value === "" ? undefined : `Default: ${value}`;
	return s.examples?.[0] === undefined ? undefined : `For example ${String(s.examples[0])}`;
}

function TextMember(props: MemberProps) {
	const { schema, value } = props;

	return (
		<TextField {...common(props)} value={typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value)}
			lines={schema.lines ?? (kindOf(schema) === "lines" ? 5 : undefined)} placeholder={hintOf(schema)}
			type={schema.format === "password" || schema.writeOnly ? "password" : "text"}
			onInput={(text) => props.onChange(text === "" ? undefined : text)} />
	);
}

// What is no number stays as it was typed, with an error beside it.
function NumberMember(props: MemberProps) {
	const { value } = props;

	return (
		<Field {...common(props)}>
			{(control) => (
				<input {...control} type="text" inputMode="decimal" autoComplete="off" placeholder={hintOf(props.schema)}
					value={value === undefined || value === null ? "" : String(value)}
					onInput={(e) => {
						const text = e.currentTarget.value.trim();

						props.onChange(text === "" ? undefined : Number.isFinite(Number(text)) && !/[.e]$/i.test(text) ? Number(text) : text);
					}} />
			)}
		</Field>
	);
}

function BooleanMember(props: MemberProps) {
	const checked = props.value === undefined ? props.schema.default === true : props.value === true;

	return <CheckField label={props.label} help={props.schema.description} error={props.errors[props.path]} checked={checked}
		onChange={(on) => props.onChange(on)} />;
}

function ChoiceMember(props: MemberProps) {
	const choices = choicesOf(props.schema) ?? [];
	const at = choices.findIndex((c) => JSON.stringify(c.value) === JSON.stringify(props.value));
	const standard = choices.find((c) => JSON.stringify(c.value) === JSON.stringify(props.schema.default));
	const none = standard ? `Default: ${standard.label}` : props.required ? "Choose…" : "Not set";

	return (
		<SelectField {...common(props)} value={at < 0 ? "" : String(at)}
			choices={[{ value: "", label: none }, ...choices.map((c, i) => ({ value: String(i), label: c.label }))]}
			onChange={(v) => props.onChange(v === "" ? undefined : choices[Number(v)]?.value)} />
	);
}

function SecretMember(props: MemberProps) {
	return <SecretField {...common(props)} secrets={props.secrets} lines={props.schema.lines}
		value={typeof props.value === "string" ? props.value : ""}
		onChange={(v) => props.onChange(v === "" ? undefined : v)} />;
}

function Group(props: { label: string; help?: string; error?: string; children: preact.ComponentChildren }) {
	const id = useId();

	return (
		<fieldset aria-describedby={props.help ? id : undefined}>
			<legend>{props.label}</legend>
			{props.help && <div class="help group-help" id={id}>{props.help}</div>}
			{props.children}
			{props.error && <div class="field-error" role="alert">{props.error}</div>}
		</fieldset>
	);
}

function ObjectMember(props: MemberProps) {
	return (
		<Group label={props.label} help={props.schema.description} error={props.errors[props.path]}>
			<SchemaForm schema={props.schema} value={isObject(props.value) ? props.value : {}} path={props.path} errors={props.errors}
				secrets={props.secrets} onChange={(v) => props.onChange(Object.keys(v).length > 0 ? v : undefined)} />
		</Group>
	);
}

function ListMember(props: MemberProps) {
	const items = Array.isArray(props.value) ? props.value : [];
	const schema = props.schema.items ?? {};
	const one = schema.title ?? props.label;

	function replace(i: number, value: Json | undefined) {
		props.onChange(items.map((old, n) => (n === i ? (value ?? blank(schema)) : old)));
	}

	return (
		<Group label={props.label} help={props.schema.description} error={props.errors[props.path]}>
			{items.map((item, i) => (
				<div class="item" key={i}>
					<Member schema={{ ...schema, description: undefined }} value={item} path={`${props.path}.${i}`} label={`${one} ${i + 1}`}
						required={false} errors={props.errors} secrets={props.secrets} onChange={(v) => replace(i, v)} />
					<button type="button" class="button small" aria-label={`Remove ${one} ${i + 1}`}
						onClick={() => props.onChange(items.length > 1 ? items.filter((_, n) => n !== i) : undefined)}>
						Remove
					</button>
				</div>
			))}
			<button type="button" class="button small add" onClick={() => props.onChange([...items, blank(schema)])}>
				Add to {props.label.toLowerCase()}
			</button>
		</Group>
	);
}

// Rows are kept here, because two of them may have the same name while one types.
function MapMember(props: MemberProps) {
	const [rows, setRows] = useState<[string, Json][]>(() => Object.entries(isObject(props.value) ? props.value : {}));
	const schema = props.schema.additionalProperties as Schema;

	function change(next: [string, Json][]) {
		const named = next.filter(([key]) => key !== "");

		setRows(next);
		props.onChange(named.length > 0 ? Object.fromEntries(named) : undefined);
	}

	return (
		<Group label={props.label} help={props.schema.description} error={props.errors[props.path]}>
			{rows.map(([key, value], i) => (
				<div class="item" key={i}>
					<div class="pair">
						<TextField label={`Name ${i + 1}`} value={key}
							onInput={(text) => change(rows.map((r, n) => (n === i ? [text, r[1]] : r)))} />
						<Member schema={{ ...schema, description: undefined }} value={value} path={`${props.path}.${key}`} label={`Value ${i + 1}`}
							required={false} errors={props.errors} secrets={props.secrets}
							onChange={(v) => change(rows.map((r, n) => (n === i ? [r[0], v ?? ""] : r)))} />
					</div>
					<button type="button" class="button small" aria-label={`Remove ${key || `pair ${i + 1}`}`}
						onClick={() => change(rows.filter((_, n) => n !== i))}>
						Remove
					</button>
				</div>
			))}
			<button type="button" class="button small add" onClick={() => change([...rows, ["", blank(schema)]])}>
				Add to {props.label.toLowerCase()}
			</button>
		</Group>
	);
}

function JsonMember(props: MemberProps) {
	const given = props.value as unknown;
	const text = given instanceof Unread ? given.text : given === undefined ? "" : JSON.stringify(given, null, 2);
	const [typed, setTyped] = useState<string | null>(null);

	return (
		<TextField {...common(props)} lines={4} value={typed ?? text} placeholder={hintOf(props.schema) ?? "JSON"}
			onInput={(v) => {
				setTyped(v);
				if (v.trim() === "") {
					props.onChange(undefined);
					return;
				}
				try {
					props.onChange(JSON.parse(v) as Json);
				} catch {
					props.onChange(new Unread(v) as unknown as Json);
				}
			}} />
	);
}
