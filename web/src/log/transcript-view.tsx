// A transcript: what the agent says as text, what it thinks and does folded.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { count } from "../format";
import { Code, State } from "../ui/basic";
import type { TranscriptState } from "./source";
import { briefly, type Turn } from "./turns";

const SHOWN = 400; // of the last ones, until more are asked for
const TEXT_MAX = 20_000; // of one text; the log has all of it

function cut(text: string): string {
	return text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}\n… ${(text.length - TEXT_MAX).toLocaleString("en")} more characters are in the log` : text;
}

/** What is inside is made when it is opened. */
function Fold(props: { title: ComponentChildren; kind: string; open: boolean; children: () => ComponentChildren }) {
	const [open, setOpen] = useState(props.open);

	return (
		<details class={`turn ${props.kind}`} open={open} onToggle={(e) => setOpen(e.currentTarget.open)}>
			<summary>{props.title}</summary>
			{open && props.children()}
		</details>
	);
}

function TurnView(props: { turn: Turn; live: boolean; unfolded: boolean }) {
	const { turn, live, unfolded } = props;

	switch (turn.kind) {
		case "tool":
			return (
				<Fold kind={turn.failed ? "tool failed" : "tool"} open={unfolded} title={(
					<>
						<b>{turn.name}</b> <code class="turn-line">{turn.brief}</code>
						{turn.failed && <State value="failed" />}
						{turn.result === undefined && live && <State value="running" />}
					</>
				)}>
					{() => (
						<>
							{turn.input && <Code label={`What ${turn.name} was given`} text={cut(turn.input)} />}
							{turn.result !== undefined && <Code label={`What ${turn.name} answered`} text={cut(turn.result) || "(nothing)"} />}
						</>
					)}
				</Fold>
			);
		case "thinking":
		case "result":
			return (
				<Fold kind={turn.kind} open={unfolded} title={<><b>{turn.kind === "thinking" ? "Thinking" : "Result"}</b> <span class="turn-line dim">{briefly(turn.text)}</span></>}>
					{() => <p class="prose">{cut(turn.text)}</p>}
				</Fold>
			);
		case "error":
			return <div class="turn problem">{cut(turn.text)}</div>;
		default:
			return <div class={`turn prose ${turn.kind}`}>{cut(turn.text)}</div>;
	}
}

export function TranscriptView(props: { transcript: TranscriptState; live: boolean; note?: string }) {
	const { transcript, live } = props;
	const box = useRef<HTMLDivElement>(null);
	const before = useRef(0);
	const [following, setFollowing] = useState(live);
	const [unfolded, setUnfolded] = useState(false);
	const [shown, setShown] = useState(SHOWN);
	const { all } = transcript.turns;
	const first = Math.max(0, all.length - shown);

	useLayoutEffect(() => {
		if (following && box.current) box.current.scrollTop = box.current.scrollHeight;
	}, [transcript.version, following]);

	function onScroll(): void {
		const node = box.current as HTMLDivElement;

		if (node.scrollTop < before.current && node.scrollTop + node.clientHeight < node.scrollHeight - 2) setFollowing(false);
		before.current = node.scrollTop;
	}

	return (
		<div class="log">
			<div class="log-bar">
				<label class="toggle"><input type="checkbox" checked={unfolded} onChange={(e) => setUnfolded(e.currentTarget.checked)} />Unfold</label>
				<label class="toggle"><input type="checkbox" checked={following} onChange={(e) => setFollowing(e.currentTarget.checked)} />Follow</label>
				<span class="dim log-count">{[count(transcript.turns.count("tool"), "tool call"), props.note].filter(Boolean).join(" · ")}{transcript.caughtUp ? "" : "…"}</span>
			</div>
			<div class="turns" ref={box} tabIndex={0} role="region" aria-label="Transcript" onScroll={onScroll}>
				{first > 0 && <button type="button" class="button small" onClick={() => setShown(shown + SHOWN)}>Show {Math.min(SHOWN, first)} earlier</button>}
				{all.slice(first).map((turn, i) => <TurnView key={`${first + i} ${unfolded}`} turn={turn} live={live} unfolded={unfolded} />)}
			</div>
		</div>
	);
}
