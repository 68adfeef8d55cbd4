// xterm.js. The page's policy allows no inline styles, so what the emulator would write into <style> elements and style
// attributes is handed over by script, which the policy allows.
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";

export interface ScreenHandle {
	write(data: string): void;
	size(): { columns: number; rows: number };
	focus(): void;
	close(): void;
}

function styleElement(sheets: CSSStyleSheet[]): HTMLElement {
	const element = document.createElement("template"); // an empty <style> would be a violation, too
	const sheet = new CSSStyleSheet();

	sheets.push(sheet);
	document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
	Object.defineProperty(element, "textContent", { set: (text: string) => sheet.replaceSync(text), get: () => "" });
	return element;
}

// Colours beyond the first 256 are written as attributes of spans, made with the real document.
HTMLSpanElement.prototype.setAttribute = function (this: HTMLSpanElement, name: string, value: string): void {
	if (name === "style") this.style.cssText = value;
	else Element.prototype.setAttribute.call(this, name, value);
};

/** The document, but for how styles get into it. */
function documentFor(sheets: CSSStyleSheet[]): Document {
	return new Proxy(document, {
		get(target, key) {
			if (key === "createElement")
				return (name: string) => (name === "style" ? styleElement(sheets) : target.createElement(name));
			const value: unknown = Reflect.get(target, key, target);

			return typeof value === "function" ? (value.bind(target) as unknown) : value;
		},
	});
}

export function openScreen(box: HTMLElement, onData: (data: string) => void, onResize: (columns: number, rows: number) => void): ScreenHandle {
	const sheets: CSSStyleSheet[] = [];
	const terminal = new Terminal({
		documentOverride: documentFor(sheets), screenReaderMode: true, scrollback: 10_000, cursorBlink: false, fontSize: 13,
		fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"),
		theme: { background: "#10141a", foreground: "#e4e9f0", cursor: "#e4e9f0", selectionBackground: "#37506b" },
	});
	const fit = new FitAddon();

	terminal.loadAddon(fit);
	terminal.open(box);
	fit.fit();
	terminal.onData(onData);
	terminal.onResize(({ cols, rows }) => onResize(cols, rows));
	const watcher = new ResizeObserver(() => fit.fit());

	watcher.observe(box);
	return {
		write: (data) => terminal.write(data),
		size: () => ({ columns: terminal.cols, rows: terminal.rows }),
		focus: () => terminal.focus(),
		close() {
			watcher.disconnect();
			terminal.dispose();
			document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => !sheets.includes(s));
		},
	};
}
