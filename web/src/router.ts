// Addresses: /PREFIX/SECTION/ID/MORE, where PREFIX is the company's issue prefix. Plain <a href> works everywhere:
// clicks on links of our own are taken over here.
import { createStore } from "./store";

export interface Route {
	company: string | null;
	section: string;
	id: string | null;
	more: string | null;
	query: URLSearchParams;
}

function read(): Route {
	const parts = location.pathname.split("/").filter(Boolean).map(safeDecode);

	return {
		company: parts[0] ?? null,
		section: parts[1] ?? "overview",
		id: parts[2] ?? null,
		more: parts[3] ?? null,
		query: new URLSearchParams(location.search),
	};
}

function safeDecode(part: string): string {
	try {
		return decodeURIComponent(part);
	} catch {
		return part;
	}
}

export const route = createStore<Route>(read());

export function navigate(path: string, replace = false): void {
	if (replace) history.replaceState(null, "", path);
	else history.pushState(null, "", path);
	arrived();
}

function arrived(): void {
	const before = route.get();
	const now = read();

	route.set(now);
	if (before.section !== now.section || before.id !== now.id) {
		scrollTo(0, 0);
		// A reader of the screen hears the new heading, as with a real page.
		requestAnimationFrame(() => document.querySelector<HTMLElement>("main h1")?.focus({ preventScroll: true }));
	}
}

export function startRouter(): void {
	addEventListener("popstate", arrived);
	document.addEventListener("click", (e) => {
		const link = (e.target as Element | null)?.closest?.("a");

		if (!link || e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
		if (link.origin !== location.origin || link.target || link.hasAttribute("download")) return;
		if (link.getAttribute("href")?.startsWith("#") || link.pathname.startsWith("/api/")) return;
		e.preventDefault();
		navigate(link.pathname + link.search);
	});
}
