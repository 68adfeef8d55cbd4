// Debian's Chromium, driven by Playwright, at the end of a pipe (test/it/webtest.py).
//
// One line in: {id, on, steps: [[method, ...arguments], ...]}; `on` names a page or "browser". The steps are called one
// on the result of the other. One line out: {id, value} or {id, error}. `browser.open(options)` makes a page in a
// context of its own; what it has to answer for (scripts that threw, violations of the policy, requests to elsewhere)
// is in `NAME.troubles`.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [modules, chromiumPath, origin] = process.argv.slice(2);
const { chromium } = await import(pathToFileURL(`${modules}/playwright-core/index.mjs`).href);
const axe = readFileSync(`${modules}/axe-core/axe.min.js`, "utf8");
const patience = Number(process.env.TEST_PATIENCE ?? 1);
const browser = await chromium.launch({
	executablePath: chromiumPath,
	args: [
		"--no-sandbox",
		"--disable-dev-shm-usage",
		"--disable-gpu",
		"--disable-crash-reporter",
		"--disable-background-networking",
		// Names of nobody, for pages from elsewhere (test_cross_site.py).
		"--host-resolver-rules=MAP *.example 127.0.0.1",
	],
});
const objects = {};
let opened = 0;

function watch(page, troubles) {
	page.on("pageerror", (e) => troubles.push(`threw: ${e.stack ?? e}`));
	page.on("console", (m) => {
		const text = m.text();

		// Answers that are no success, and a daemon that is away, are what tests are about.
		if (m.type() === "error" && !/^(Failed to load resource|WebSocket connection to .* failed)/.test(text)) troubles.push(`console: ${text}`);
	});
	page.on("request", (r) => {
		const url = new URL(r.url());

		if (url.protocol.startsWith("http") && !objects.origins.has(url.origin)) troubles.push(`asked ${r.url()}`);
	});
}

objects.origins = new Set([origin]);
objects.browser = {
	async open({ trusted, ...options } = {}) {
		const context = await browser.newContext({ baseURL: origin, ...options });
		const page = await context.newPage();
		const name = `page${++opened}`;

		context.setDefaultTimeout(20_000 * patience);
		if (trusted) objects.origins.add(trusted);
		objects[name] = page;
		objects[`${name}.context`] = context;
		objects[`${name}.troubles`] = [];
		objects[`${name}.downloads`] = [];
		page.on("download", async (d) => {
			const [file, path] = [d.suggestedFilename(), await d.path()];

			objects[`${name}.downloads`].push([file, readFileSync(path, "utf8")]);
		});
		watch(page, objects[`${name}.troubles`]);
		return name;
	},
	troubles: (name) => objects[`${name}.troubles`].splice(0),
	/** What was saved so far: [file name, text]. */
	downloads: (name) => objects[`${name}.downloads`],
	shut: (name) => objects[`${name}.context`].close(),
	/** The value of a function of the page, given as text. */
	measure: (name, script) => objects[name].evaluate(`(${script})()`),
	/** What axe-core has against the page, one line each. */
	async axe(name) {
		const page = objects[name];

		await page.evaluate(axe);
		const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));

		return violations.map((v) => `${v.id}: ${v.help} (${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160)).join(" | ")})`);
	},
};

async function call({ on, steps }) {
	let value = objects[on];

	for (const [method, ...args] of steps) value = await value[method](...args);
	return value;
}

function plain(value) {
	if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
	return Object.getPrototypeOf(value) === Object.prototype ? value : null;
}

for await (const line of createInterface({ input: process.stdin })) {
	const { id, ...what } = JSON.parse(line);

	call(what).then(
		(value) => console.log(JSON.stringify({ id, value: plain(value) })),
		(e) => console.log(JSON.stringify({ id, error: String(e?.message ?? e) })),
	);
}
await browser.close();
