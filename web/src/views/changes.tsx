// Files that differ, each with its diff where there is one.
import { bytes } from "../format";
import { Code, State } from "../ui/basic";

export interface Change {
	path: string;
	change: string;
	kind: string;
	size: number;
	diff?: string;
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
						{c.diff ? <Code text={c.diff} label={`Changes of ${c.path}`} /> : <p class="dim">{c.kind}, {bytes(c.size ?? 0)}; no text to compare.</p>}
					</details>
				</li>
			))}
		</ul>
	);
}
