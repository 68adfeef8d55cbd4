// Short messages at the edge: what an action did, or why it did not.
import { createStore, useStore } from "../store";

interface Message {
	id: number;
	text: string;
	tone: "good" | "bad";
}

const messages = createStore<Message[]>([]);
let next = 1;

export function toast(text: string, tone: "good" | "bad" = "good"): void {
	const id = next++;

	messages.set([...messages.get().slice(-3), { id, text, tone }]);
	// Errors stay until they are dismissed: somebody has to read them.
	if (tone === "good") setTimeout(() => dismiss(id), 5000);
}

function dismiss(id: number): void {
	messages.set(messages.get().filter((m) => m.id !== id));
}

export function Toasts() {
	const all = useStore(messages);

	return (
		<div class="toasts" aria-live="polite" role="status">
			{all.map((m) => (
				<div key={m.id} class={`toast ${m.tone}`}>
					<span>{m.text}</span>
					<button type="button" class="close" aria-label="Dismiss" onClick={() => dismiss(m.id)}>
						×
					</button>
				</div>
			))}
		</div>
	);
}
