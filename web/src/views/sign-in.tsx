// A board key is asked for; it stays in this tab's session storage.
import { useState } from "preact/hooks";
import { ApiError, errorText, session, signIn } from "../api";
import { TextField } from "../ui/field";

async function check(token: string): Promise<void> {
	let answer: Response;

	try {
		answer = await fetch("/api/cli-auth/me", { headers: { Authorization: `Bearer ${token}` }, cache: "no-store", credentials: "omit" });
	} catch {
		throw new ApiError(0, "The daemon cannot be reached.");
	}
	if (answer.ok) return;
	const body = (await answer.json().catch(() => ({}))) as { error?: string };

	throw new ApiError(answer.status, answer.status === 401 ? "This key is not valid: unknown, expired or revoked."
		: (body.error ?? `The server answered ${answer.status}.`));
}

export function SignIn(props: { why: string }) {
	const [key, setKey] = useState("");
	const [error, setError] = useState<string>();
	const [busy, setBusy] = useState(false);

	async function submit(e: Event) {
		e.preventDefault();
		const token = key.trim();

		if (!token) {
			setError("Paste a board key.");
			return;
		}
		// Header values are single-byte; anything else is not a key anyway.
		if (!/^[\x21-\x7e]+$/.test(token)) {
			setError("This is not a key: keys have letters, digits and underscores only.");
			return;
		}
		setBusy(true);
		try {
			await check(token);
			signIn(token);
		} catch (problem) {
			setError(errorText(problem));
			setBusy(false);
		}
	}

	return (
		<main class="sign-in">
			<form onSubmit={(e) => void submit(e)} noValidate>
				<h1>Sign in to Berth</h1>
				<p role="status">{session.get().needsKey ?? props.why}</p>
				<TextField label="Board key" type="password" value={key} onInput={setKey} error={error} required
					placeholder="pcp_board_…" autoComplete="current-password"
					help={<>Make one on the daemon's machine: <code>berth key create --board --user NAME</code></>} />
				<button type="submit" class="button primary" disabled={busy} aria-busy={busy}>
					Sign in
				</button>
			</form>
		</main>
	);
}
