// State that several components share: a value, and those who want to know when it changes.
import { useEffect, useState } from "preact/hooks";

export interface Store<T> {
	get(): T;
	set(value: T): void;
	subscribe(listener: () => void): () => void;
}

export function createStore<T>(initial: T): Store<T> {
	let value = initial;
	const listeners = new Set<() => void>();

	return {
		get: () => value,
		set(next) {
			if (Object.is(next, value)) return;
			value = next;
			for (const listener of [...listeners]) listener();
		},
		subscribe(listener) {
			listeners.add(listener);
			return () => listeners.delete(listener);
		},
	};
}

export function useStore<T>(store: Store<T>): T {
	const [, redraw] = useState(0);

	useEffect(() => {
		const seen = store.get();
		const stop = store.subscribe(() => redraw((n) => n + 1));

		// It may have changed between the drawing and now.
		if (!Object.is(seen, store.get())) redraw((n) => n + 1);
		return stop;
	}, [store]);
	return store.get();
}
