// Times, durations and sizes for people.

const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [
	["day", 86400],
	["hour", 3600],
	["minute", 60],
	["second", 1],
];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
const absolute = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });

/** "5 min. ago", "in 2 hr." */
export function ago(iso: string | number, now = Date.now()): string {
	const seconds = Math.round(((typeof iso === "number" ? iso : Date.parse(iso)) - now) / 1000);
	const [unit, size] = UNITS.find(([, s]) => Math.abs(seconds) >= s) ?? ["second", 1];

	return relative.format(Math.trunc(seconds / size), unit);
}

export function exactly(iso: string | number): string {
	return absolute.format(new Date(iso));
}

export function clockTime(iso: string | number): string {
	return clock.format(new Date(iso));
}

/** "340 ms", "12.4 s", "3 min 20 s", "2 h 05 min" */
export function duration(ms: number): string {
	if (ms < 1000) return `${Math.round(ms)} ms`;
	if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
	const s = Math.round(ms / 1000);

	if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
	const m = Math.floor(s / 60);

	if (m < 48 * 60) return `${Math.floor(m / 60)} h ${String(m % 60).padStart(2, "0")} min`;
	return `${Math.floor(m / 1440)} d ${Math.floor((m % 1440) / 60)} h`;
}

export function bytes(n: number): string {
	const units = ["B", "kB", "MB", "GB", "TB"];
	let i = 0;

	while (n >= 1000 && i < units.length - 1) {
		n /= 1000;
		i++;
	}
	return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

export function count(n: number, one: string, many = `${one}s`): string {
	return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

/** The end of an id, which is what differs. */
export function shortId(id: string): string {
	return id.slice(-12);
}
