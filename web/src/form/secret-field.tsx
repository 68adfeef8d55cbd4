// A secret: a value that becomes one when it is saved, or one of the company's. What is kept is never shown.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { Secret } from "../model";
import { Field } from "../ui/field";

export interface SecretFieldProps {
	label: string;
	help?: ComponentChildren;
	error?: string;
	required?: boolean;
	secrets: Secret[];
	/** The id of a secret, or a new value. */
	value: string;
	onChange: (value: string) => void;
	lines?: number;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export function SecretField(props: SecretFieldProps) {
	const isRef = UUID.test(props.value);
	const [typing, setTyping] = useState(!isRef && props.value !== "");
	const known = props.secrets.find((s) => s.id === props.value);

	function choose(v: string) {
		setTyping(v === "new");
		props.onChange(v === "new" ? "" : v);
	}

	return (
		<div class="secret">
			<Field {...props} error={typing ? undefined : props.error}>
				{(control) => (
					<select {...control} value={typing ? "new" : isRef ? props.value : ""} onChange={(e) => choose(e.currentTarget.value)}>
						<option value="">{props.required ? "Choose…" : "Not set"}</option>
						<option value="new">Enter a value…</option>
						{isRef && !known && <option value={props.value}>The value that is kept</option>}
						{props.secrets.length > 0 && (
							<optgroup label="Secrets of the company">
								{props.secrets.map((s) => (
									<option key={s.id} value={s.id}>
										{s.name}
									</option>
								))}
							</optgroup>
						)}
					</select>
				)}
			</Field>
			{typing && (
				<Field label={`${props.label}: new value`} error={props.error} help="It is kept as a secret and never shown again.">
					{(control) =>
						props.lines ? (
							<textarea {...control} rows={props.lines} value={props.value} spellcheck={false} autoComplete="off"
								onInput={(e) => props.onChange(e.currentTarget.value)} />
						) : (
							<input {...control} type="password" value={props.value} autoComplete="new-password"
								onInput={(e) => props.onChange(e.currentTarget.value)} />
						)
					}
				</Field>
			)}
		</div>
	);
}
