// A dialog on the browser's own <dialog>: it keeps the focus, and Escape closes it.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { refresh } from "../live";
import { Problem } from "./basic";
import { toast } from "./toast";

export interface DialogProps {
	title: string;
	onClose: () => void;
	children: ComponentChildren;
	/** Buttons at the end. */
	footer?: ComponentChildren;
}

export function Dialog(props: DialogProps) {
	const ref = useRef<HTMLDialogElement>(null);

	useEffect(() => {
		const dialog = ref.current;

		dialog?.showModal();
		return () => dialog?.close(); // the focus goes back to where it was
	}, []);
	return (
		<dialog ref={ref} aria-labelledby="dialog-title" onClose={props.onClose}>
			<h2 id="dialog-title">{props.title}</h2>
			<div class="dialog-body">{props.children}</div>
			<div class="dialog-foot">{props.footer}</div>
		</dialog>
	);
}

export interface ConfirmProps {
	title: string;
	children: ComponentChildren;
	/** The word on the button. */
	label: string;
	danger?: boolean;
	disabled?: boolean;
	run: () => Promise<unknown>;
	done?: string;
	onClose: () => void;
}

/** Ask before something that cannot be taken back. What goes wrong is said inside. */
export function Confirm(props: ConfirmProps) {
	const [error, setError] = useState<unknown>(null);
	const [busy, setBusy] = useState(false);

	async function go() {
		setBusy(true);
		setError(null);
		try {
			await props.run();
			if (props.done) toast(props.done);
			props.onClose();
			refresh();
		} catch (e) {
			setError(e);
			setBusy(false);
		}
	}

	return (
		<Dialog title={props.title} onClose={props.onClose}
			footer={
				<>
					<button type="button" class="button" onClick={props.onClose}>
						Cancel
					</button>
					<button type="button" class={`button ${props.danger ? "danger" : "primary"}`} disabled={busy || props.disabled}
						aria-busy={busy} onClick={() => void go()}>
						{props.label}
					</button>
				</>
			}>
			{props.children}
			<Problem error={error} />
		</Dialog>
	);
}
