// What an agent said and did, as the records of its transcript bring it (docs/adapters.md, "The transcript"). The texts are
// the agent's: whatever steers a terminal is left out here, and they are shown as text.
import type { Json } from "../model";
import { withoutAnsi } from "./ansi";

export interface TurnRecord {
	kind: string;
	ts?: string | null;
	text?: string;
	/** Of a tool call and its result. */
	id?: string;
	name?: string;
	input?: Json;
	failed?: boolean;
	tokens?: Partial<Record<"input" | "cached" | "output", number>>;
	/** Of output that is no event. */
	stream?: string;
}

export interface Turn {
	kind: "text" | "thinking" | "tool" | "result" | "usage" | "error" | "output";
	text: string;
	/** Of a tool. */
	name?: string;
	input?: string;
	/** Its input in a line. */
	brief?: string;
	result?: string;
	failed?: boolean;
}

const KINDS = ["text", "thinking", "tool", "result", "usage", "error", "output"];

function plain(text: unknown): string {
	return typeof text === "string" ? withoutAnsi(text) : "";
}

const BRIEF_MAX = 160;

/** The first line of a text that is long. */
export function briefly(text: string): string {
	return (text.split("\n").find((line) => line.trim() !== "") ?? "").trim().slice(0, BRIEF_MAX);
}

/** A command as it is, anything else as JSON, indented by so much. */
function inputText(input: Json | undefined, indent = 0): string {
	if (typeof input === "string") return plain(input);
	if (typeof input !== "object" || input === null) return "";
	const command = Array.isArray(input) ? undefined : input.command;

	return plain(typeof command === "string" ? command : JSON.stringify(input, null, indent));
}

function tokensText(tokens: TurnRecord["tokens"]): string {
	const of = (n: number | undefined) => (n ?? 0).toLocaleString("en");

	return `${of(tokens?.input)} tokens in, ${of(tokens?.cached)} cached, ${of(tokens?.output)} out`;
}

export class Turns {
	readonly all: Turn[] = [];
	private waiting = new Map<string, Turn>();
	private isOpen = false;

	add(r: TurnRecord): void {
		const last = this.all[this.all.length - 1];
		const wasOpen = this.isOpen;
		const text = r.kind === "usage" ? tokensText(r.tokens) : plain(r.text);
		const call = r.kind === "result" && r.id ? this.waiting.get(r.id) : undefined;

		this.isOpen = r.kind === "delta";
		if (call) {
			call.result = text;
			call.failed = r.failed === true;
			this.waiting.delete(r.id as string);
		} else if (r.kind === "delta" && wasOpen && last) {
			last.text += text;
		} else if (r.kind === "output" && last?.kind === "output") {
			last.text += (last.text.endsWith("\n") ? "" : "\n") + text;
		} else if (r.kind === "tool") {
			const turn: Turn = { kind: "tool", text: "", name: plain(r.name) || "tool", input: inputText(r.input, 2), brief: briefly(inputText(r.input)) };

			this.all.push(turn);
			if (r.id) this.waiting.set(r.id, turn);
		} else if (text !== "" && (r.kind === "delta" || KINDS.includes(r.kind))) {
			this.all.push({ kind: r.kind === "delta" ? "text" : (r.kind as Turn["kind"]), text, failed: r.failed === true });
		}
	}

	count(kind: Turn["kind"]): number {
		return this.all.filter((t) => t.kind === kind).length;
	}
}
