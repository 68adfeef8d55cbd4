// What every form does: look first, send, and put what the server refuses beside its field.
import { useState } from "preact/hooks";
import { fieldErrors } from "../api";

export interface Form {
	/** By field. */
	errors: Record<string, string>;
	error: unknown;
	busy: boolean;
	/** `wrong` is what is plainly wrong; `send` is called when nothing is. */
	submit(e: Event, wrong: Record<string, string | false>, send: () => Promise<void>): void;
}

export function useForm(): Form {
	const [errors, setErrors] = useState<Record<string, string>>({});
	const [error, setError] = useState<unknown>(null);
	const [busy, setBusy] = useState(false);

	async function go(wrong: Record<string, string | false>, send: () => Promise<void>): Promise<void> {
		const found = Object.fromEntries(Object.entries(wrong).filter((pair): pair is [string, string] => pair[1] !== false));

		setErrors(found);
		setError(null);
		if (Object.keys(found).length > 0) {
			requestAnimationFrame(() => document.querySelector<HTMLElement>("main [aria-invalid]")?.focus());
			return;
		}
		setBusy(true);
		try {
			await send();
		} catch (problem) {
			setErrors(fieldErrors(problem));
			setError(problem);
		}
		setBusy(false);
	}

	return {
		errors,
		error,
		busy,
		submit(e, wrong, send) {
			e.preventDefault();
			void go(wrong, send);
		},
	};
}
