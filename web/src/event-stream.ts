// Server-sent events, from the body of an answer. Not an EventSource, because that cannot send the key.

export interface StreamEvent {
	/** "": it has none. */
	id: string;
	name: string;
	data: string;
}

function parse(block: string): StreamEvent {
	const event: StreamEvent = { id: "", name: "", data: "" };

	for (const line of block.split("\n")) {
		const colon = line.indexOf(":");
		const field = colon < 0 ? line : line.slice(0, colon);
		const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");

		if (field === "id") event.id = value;
		else if (field === "event") event.name = value;
		else if (field === "data") event.data += (event.data ? "\n" : "") + value;
	}
	return event;
}

/** Until the stream ends, or is cut off: whoever wants more comes back. `heard` is called for whatever comes. */
export async function* eventsOf(body: ReadableStream<Uint8Array<ArrayBuffer>>, heard?: () => void): AsyncGenerator<StreamEvent> {
	const reader = body.pipeThrough(new TextDecoderStream()).getReader();
	let text = "";

	for (;;) {
		const { done, value } = await reader.read().catch(() => ({ done: true, value: "" }));

		if (done) return;
		heard?.();
		text += value;
		for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
			const block = text.slice(0, end);

			text = text.slice(end + 2);
			yield parse(block);
		}
	}
}
