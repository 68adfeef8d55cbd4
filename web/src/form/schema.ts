// What a form knows of a JSON Schema: which control a member gets, and what is wrong with a value before the server is
// asked. The server decides; this only spares a round trip for what is plain.
import type { Json, JsonObject, Schema } from "../model";

export type Kind = "text" | "lines" | "number" | "boolean" | "choice" | "secret" | "object" | "map" | "list" | "json";

function typeOf(s: Schema): string | undefined {
	if (Array.isArray(s.type)) return s.type.find((t) => t !== "null");
	return s.type;
}

/** The values of an enumeration; undefined when it is none. */
export function choicesOf(s: Schema): { value: Json; label: string }[] | undefined {
	if (s.enum) return s.enum.map((value) => ({ value, label: String(value) }));
	const all = s.oneOf ?? s.anyOf;

	if (all?.length && all.every((o) => "const" in o))
		return all.map((o) => ({ value: o.const as Json, label: o.title ?? String(o.const) }));
	return undefined;
}

function isSecret(s: Schema): boolean {
	return s.format === "secret-ref";
}

export function kindOf(s: Schema): Kind {
	if (isSecret(s)) return "secret";
	if (choicesOf(s)) return "choice";
	switch (typeOf(s)) {
		case "boolean":
			return "boolean";
		case "integer":
		case "number":
			return "number";
		case "string":
			return s.format === "multiline" || s.format === "textarea" ? "lines" : "text";
		case "array":
			return s.items && !Array.isArray(s.items) ? "list" : "json";
		case "object":
			if (s.properties && Object.keys(s.properties).length > 0) return "object";
			return typeof s.additionalProperties === "object" ? "map" : "json";
		default:
			return s.properties ? "object" : "json";
	}
}

const WORDS: Record<string, string> = { api: "API", cpu: "CPU", cpus: "CPUs", id: "ID", url: "URL", ssh: "SSH", env: "variables", mb: "(MB)",
	ms: "(ms)", gb: "(GB)" };

/** "memoryMb" -> "Memory (MB)": what to call a member whose schema has no title. */
export function titleOf(key: string, s: Schema): string {
	if (s.title) return s.title;
	const words = key.replaceAll(/[_-]+/g, " ").replaceAll(/([a-z0-9])([A-Z])/g, "$1 $2").toLowerCase().split(" ");
	const title = words.map((w) => WORDS[w] ?? w).join(" ");

	return title.charAt(0).toUpperCase() + title.slice(1);
}

export function isObject(v: Json | undefined): v is JsonObject {
	return typeof v === "object" && v !== null && !Array.isArray(v);
}

/** A value that a new item of a list begins with. */
export function blank(s: Schema): Json {
	if (s.default !== undefined) return structuredClone(s.default);
	switch (kindOf(s)) {
		case "boolean":
			return false;
		case "object":
		case "map":
			return {};
		case "list":
			return [];
		case "choice":
			return choicesOf(s)?.[0]?.value ?? "";
		case "json":
			return null;
		default:
			return "";
	}
}

/** Text that could not be understood as JSON; kept as it is so that it can be mended. */
export class Unread {
	constructor(readonly text: string) {}
}

export type Errors = Record<string, string>;

function checkText(s: Schema, v: string): string | undefined {
	if (s.minLength !== undefined && v.length < s.minLength) return `At least ${s.minLength} characters.`;
	if (s.maxLength !== undefined && v.length > s.maxLength) return `At most ${s.maxLength} characters.`;
	if (s.pattern !== undefined) {
		try {
			if (!new RegExp(s.pattern, "u").test(v)) return `Has to match ${s.pattern}`;
		} catch {
			return undefined; // not a pattern of ours; the provider will say
		}
	}
	return undefined;
}

function checkNumber(s: Schema, v: Json): string | undefined {
	if (typeof v !== "number") return "Has to be a number.";
	if (typeOf(s) === "integer" && !Number.isInteger(v)) return "Has to be a whole number.";
	if (s.minimum !== undefined && v < s.minimum) return `At least ${s.minimum}.`;
	if (s.maximum !== undefined && v > s.maximum) return `At most ${s.maximum}.`;
	if (s.exclusiveMinimum !== undefined && v <= s.exclusiveMinimum) return `More than ${s.exclusiveMinimum}.`;
	if (s.exclusiveMaximum !== undefined && v >= s.exclusiveMaximum) return `Less than ${s.exclusiveMaximum}.`;
	return undefined;
}

function checkList(s: Schema, v: Json[], path: string, errors: Errors): void {
	if (s.minItems !== undefined && v.length < s.minItems) errors[path] = `At least ${s.minItems}.`;
	if (s.maxItems !== undefined && v.length > s.maxItems) errors[path] = `At most ${s.maxItems}.`;
	v.forEach((item, i) => check(s.items ?? {}, item, `${path}.${i}`, errors));
}

/** Put what is wrong with a value into `errors`, by path. */
export function check(s: Schema, v: Json | undefined, path: string, errors: Errors): void {
	if (v === undefined || v === null) return;
	if ((v as unknown) instanceof Unread) {
		errors[path] = "This is not JSON.";
		return;
	}
	const found = kindOf(s) === "number" ? checkNumber(s, v)
		: typeof v === "string" && typeOf(s) === "string" && !isSecret(s) ? checkText(s, v) : undefined;

	if (found) errors[path] = found;
	if (Array.isArray(v)) checkList(s, v, path, errors);
	else if (isObject(v)) checkMembers(s, v, path, errors);
}

function checkMembers(s: Schema, v: JsonObject, path: string, errors: Errors): void {
	const at = (key: string) => (path ? `${path}.${key}` : key);

	for (const key of s.required ?? [])
		if (v[key] === undefined || v[key] === "" || v[key] === null)
			if (s.properties?.[key]?.default === undefined) errors[at(key)] = "This is needed.";
	for (const [key, inner] of Object.entries(s.properties ?? {})) check(inner, v[key], at(key), errors);
	if (!s.properties && typeof s.additionalProperties === "object")
		for (const [key, value] of Object.entries(v)) check(s.additionalProperties, value, at(key), errors);
}
