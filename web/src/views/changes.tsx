// Files that differ, each with its diff where there is one.
import { bytes } from "../format";
import { State } from "../ui/basic";

export interface Change {
	path: string;
	change: string;
	kind: string;
	size: number;
	diff?: string;
}

const KINDS: Record<string, string> = { "+": "plus", "-": "minus", "@": "hunk" };

/** A unified diff; signs and colours say the same. */
function Diff(props: { text: string; label: string }) {
	return (
		<pre class="code diff" tabIndex={0} role="region" aria-label={props.label}>
			{props.text.replace(/\n$/, "").split("\n").map((line, i) => <span key={i} class={KINDS[line[0] ?? ""]}>{line}</span>)}
		</pre>
	);
}

export function ChangeList(props: { changes: Change[] }) {
	if (props.changes.length === 0) return <p class="dim">Nothing was changed.</p>;
	return (
		<ul class="changes">
			{props.changes.map((c) => (
				<li key={c.path}>
					<details>
						<summary>
							<State value={c.change} tone={c.change === "delete" ? "bad" : c.change === "add" ? "good" : "busy"} /> <code>{c.path}</code>
						</summary>
						{c.diff ? <Diff text={c.diff} label={`Changes of ${c.path}`} /> : <p class="dim">{c.kind}, {bytes(c.size ?? 0)}; no text to compare.</p>}
					</details>
				</li>
			))}
		</ul>
	);
}
