// Colours of terminals: which pieces of a line have which style. Sequences that are no colours are left out.

export interface Style {
	/** 0–15 by name, 16–255 from the cube, "#rrggbb". */
	fg?: number | string;
	bg?: number | string;
	bold?: boolean;
	dim?: boolean;
	italic?: boolean;
	underline?: boolean;
	strike?: boolean;
	inverse?: boolean;
}

export interface Piece {
	text: string;
	style: Style;
}

export const PLAIN: Style = Object.freeze({});

// CSI with its parameters and final byte; OSC up to BEL or ST; other two-byte escapes; controls but tab.
const SEQUENCE = /\x1b\[([0-?]*)[ -/]*([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?|[\x00-\x08\x0b-\x1f\x7f]/g;

function colour(params: number[], at: number): [number | string | undefined, number] {
	if (params[at + 1] === 5) return [(params[at + 2] ?? 0) & 255, at + 2];
	if (params[at + 1] === 2) {
		const rgb = [2, 3, 4].map((i) => Math.min(255, params[at + i] ?? 0).toString(16).padStart(2, "0"));

		return [`#${rgb.join("")}`, at + 4];
	}
	return [undefined, at];
}

const ON: Record<number, Partial<Style>> = {
	1: { bold: true }, 2: { dim: true }, 3: { italic: true }, 4: { underline: true }, 7: { inverse: true }, 9: { strike: true },
	22: { bold: false, dim: false }, 23: { italic: false }, 24: { underline: false }, 27: { inverse: false }, 29: { strike: false },
	39: { fg: undefined }, 49: { bg: undefined },
};

/** The style after one SGR sequence. */
function sgr(style: Style, text: string): Style {
	const params = text.split(/[;:]/).map((p) => Number(p) || 0);
	let next: Style = { ...style };

	for (let i = 0; i < params.length; i++) {
		const p = params[i] as number;

		if (p === 0) next = {};
		else if (ON[p]) Object.assign(next, ON[p]);
		else if (p >= 30 && p <= 37) next.fg = p - 30;
		else if (p >= 40 && p <= 47) next.bg = p - 40;
		else if (p >= 90 && p <= 97) next.fg = p - 82;
		else if (p >= 100 && p <= 107) next.bg = p - 92;
		else if (p === 38) [next.fg, i] = colour(params, i);
		else if (p === 48) [next.bg, i] = colour(params, i);
	}
	return Object.values(next).some((v) => v !== undefined && v !== false) ? next : PLAIN;
}

/** The pieces of a line that begins with `style`, and the style that the next one begins with. */
export function parseAnsi(text: string, style: Style): { pieces: Piece[]; end: Style } {
	if (!SEQUENCE.test(text)) return { pieces: text ? [{ text, style }] : [], end: style };
	const pieces: Piece[] = [];
	let from = 0;

	SEQUENCE.lastIndex = 0;
	for (let m = SEQUENCE.exec(text); m; m = SEQUENCE.exec(text)) {
		if (m.index > from) pieces.push({ text: text.slice(from, m.index), style });
		from = m.index + m[0].length;
		if (m[2] === "m") style = sgr(style, m[1] ?? "");
		if (m[0].length === 0) SEQUENCE.lastIndex++;
	}
	SEQUENCE.lastIndex = 0;
	if (from < text.length) pieces.push({ text: text.slice(from), style });
	return { pieces, end: style };
}

export function withoutAnsi(text: string): string {
	return text.replace(SEQUENCE, "");
}

/* Colours that can be read: those that a program chose freely are made darker on light, lighter on dark. */

const STEPS = [0, 95, 135, 175, 215, 255];

function rgbOf(colour: number | string): [number, number, number] {
	if (typeof colour === "string") {
		const n = parseInt(colour.slice(1), 16);

		return [n >> 16, (n >> 8) & 255, n & 255];
	}
	if (colour >= 232) {
		const grey = 8 + (colour - 232) * 10;

		return [grey, grey, grey];
	}
	const n = colour - 16;

	return [STEPS[Math.floor(n / 36)] as number, STEPS[Math.floor(n / 6) % 6] as number, STEPS[n % 6] as number];
}

function luminance(rgb: number[]): number {
	const [r, g, b] = rgb.map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4)) as [number, number, number];

	return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a: number, b: number): number {
	return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}

const LIGHT = 0.88; // the luminance of what the log is drawn on, with a little to spare
const DARK = 0.012;

function towards(rgb: number[], back: number, goal: number): string {
	let now = rgb;

	for (let i = 0; i < 20 && contrast(luminance(now), back) < 4.6; i++) now = now.map((c) => c + (goal - c) * 0.15);
	return `rgb(${now.map(Math.round).join(" ")})`;
}

const cache = new Map<number | string, string>();

/** As a CSS colour, for text on the log's own background. */
export function readable(colour: number | string): string {
	if (typeof colour === "number" && colour < 16) return `var(--ansi-${colour})`;
	let css = cache.get(colour);

	if (!css) {
		const rgb = rgbOf(colour);

		css = `light-dark(${towards(rgb, LIGHT, 0)}, ${towards(rgb, DARK, 255)})`;
		if (cache.size < 2000) cache.set(colour, css);
	}
	return css;
}

/** A background and the text on it. */
export function onBackground(colour: number | string): { background: string; color: string } {
	if (typeof colour === "number" && colour < 16) return { background: `var(--ansi-${colour})`, color: "var(--code)" };
	const rgb = rgbOf(colour);

	return { background: `rgb(${rgb.join(" ")})`, color: luminance(rgb) > 0.18 ? "#000" : "#fff" };
}
