// Says plainly when the daemon cannot be reached, and since when.
import { useEffect, useRef } from "preact/hooks";
import { clockTime } from "../format";
import { connection } from "../live";
import { useStore } from "../store";
import { toast } from "./toast";

export function ConnectionBar() {
	const { state, since } = useStore(connection);
	const wasLost = useRef(false);

	useEffect(() => {
		if (wasLost.current && state !== "lost") toast("Connected again; what you see is up to date.");
		wasLost.current = state === "lost";
	}, [state]);
	return (
		<div role="status" class="connection">
			{state === "lost" && (
				<p class="lost">
					<strong>Connection lost</strong> at {clockTime(since)}. What you see may be out of date; trying to reach the daemon
					again…
				</p>
			)}
			{state === "live" && <span class="pulse" title="Changes are shown as they happen">live</span>}
			{state === "polling" && <span class="pulse slow" title="Changes are shown within seconds">updating</span>}
		</div>
	);
}
