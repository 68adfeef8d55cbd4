// Installing and upgrading take a while: what they say is shown as it comes.
import { useEffect, useState } from "preact/hooks";
import { api, ApiError, errorText } from "../api";
import { refresh } from "../live";
import { Code, Problem } from "../ui/basic";

interface Progress {
	done: boolean;
	next: number;
	lines: string[];
	error?: string | null;
	pluginId?: string | null;
}

const ASK_MS = 400;

export interface Outcome {
	pluginId: string | null;
	error: string | null;
}

/** The lines of an operation until it is over. */
export function OperationView(props: { id: string; onDone: (outcome: Outcome) => void }) {
	const [lines, setLines] = useState<string[]>([]);
	const [error, setError] = useState<string | null>(null);

	useEffect(() => {
		let timer = 0;
		let after = 0;
		let stopped = false;

		async function ask(): Promise<void> {
			try {
				const p = await api.get<Progress>(`/plugins/operations/${props.id}?after=${after}`);

				if (stopped) return;
				after = p.next;
				if (p.lines.length > 0) setLines((all) => [...all, ...p.lines]);
				if (p.done) {
					setError(p.error ?? null);
					refresh(["plugins", "environments"]);
					props.onDone({ pluginId: p.pluginId ?? null, error: p.error ?? null });
					return;
				}
			} catch (e) {
				if (stopped) return;
				// A daemon that is away comes back, and says then what became of it.
				if (!(e instanceof ApiError && e.unreachable)) {
					setError(errorText(e));
					props.onDone({ pluginId: null, error: errorText(e) });
					return;
				}
			}
			timer = window.setTimeout(() => void ask(), ASK_MS);
		}

		void ask();
		return () => {
			stopped = true;
			clearTimeout(timer);
		};
	}, [props.id]);
	return (
		<div role="status">
			<Code label="Progress" text={lines.join("\n") || "Starting…"} />
			<Problem error={error} />
		</div>
	);
}
