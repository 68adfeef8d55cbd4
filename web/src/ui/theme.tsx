// Light or dark: as the system has it, unless somebody chose.
import { useState } from "preact/hooks";

const STORED = "berth.theme";
const NAMES: Record<string, string> = { "": "Theme: system", light: "Theme: light", dark: "Theme: dark" };
const NEXT: Record<string, string> = { "": "light", light: "dark", dark: "" };

function apply(theme: string): void {
	if (theme) document.documentElement.dataset.theme = theme;
	else delete document.documentElement.dataset.theme;
}

function stored(): string {
	const theme = localStorage.getItem(STORED) ?? "";

	return theme in NAMES ? theme : "";
}

apply(stored());

export function ThemeButton() {
	const [theme, setTheme] = useState(stored);

	function turn() {
		const next = NEXT[theme] ?? "";

		localStorage.setItem(STORED, next);
		apply(next);
		setTheme(next);
	}

	return (
		<button type="button" class="link" onClick={turn}>
			{NAMES[theme]}
		</button>
	);
}
