// A shell in a lease. The emulator is loaded only here.
import { useEffect, useRef, useState } from "preact/hooks";
import { errorText } from "../api";
import { useHere } from "../context";
import { useQuery } from "../live";
import type { Environment, Lease } from "../model";
import { Loading, Problem, Title } from "../ui/basic";
import { Shell } from "./terminal-shell";

export function TerminalView(props: { id: string }) {
	const { to } = useHere();
	const lease = useQuery<Lease>(`/environment-leases/${props.id}`, ["leases"]);
	const environment = useQuery<Environment>(lease.data ? `/environments/${lease.data.environmentId}` : null).data;

	return (
		<>
			<Title above={<a href={to(`/leases/${props.id}`)}>Lease in {environment?.name ?? "…"}</a>}>Terminal</Title>
			<Problem error={lease.error} />
			{lease.data ? <Screen lease={lease.data} /> : lease.loading && <Loading />}
		</>
	);
}

function Screen(props: { lease: Lease }) {
	const box = useRef<HTMLDivElement>(null);
	const [state, setState] = useState<"starting" | "open" | "ended">("starting");
	const [note, setNote] = useState("");
	const [error, setError] = useState<string>();
	const [round, setRound] = useState(0);

	useEffect(() => {
		let shell: Shell | undefined;
		let close: (() => void) | undefined;
		let left = false;

		async function open(): Promise<void> {
			const { openScreen } = await import("./terminal-screen");

			if (left || !box.current) return;
			const screen = openScreen(box.current, (data) => shell?.type(data), (columns, rows) => shell?.resize(columns, rows));

			close = screen.close;
			shell = new Shell(props.lease.id, screen, () => {
				if (left) return;
				setState("open");
				screen.focus();
			});
			const end = await shell.run(screen.size);

			if (left) return;
			setState("ended");
			setNote(end);
		}

		setState("starting");
		setError(undefined);
		setNote("");
		open().catch((e: unknown) => {
			if (left) return;
			setError(errorText(e));
			setState("ended");
		});
		return () => {
			left = true;
			shell?.close();
			close?.();
		};
	}, [round]);
	return (
		<>
			<Problem error={error} />
			<div class="terminal" ref={box} role="group" aria-label="Terminal" />
			<p role="status" class="terminal-note">
				{state === "starting" && "Starting a shell…"}
				{state === "open" && <span class="dim">Leaving this page, or loading it again, ends the shell. Ctrl+Shift+C and Ctrl+Shift+V copy and paste.</span>}
				{state === "ended" && note}
			</p>
			{state === "ended" && <button type="button" class="button" onClick={() => setRound(round + 1)}>New shell</button>}
		</>
	);
}
