// One field of a form: label, what it is for, the control, and what is wrong with it, tied together for screen readers.
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

export interface ControlProps {
	id: string;
	"aria-describedby"?: string;
	"aria-invalid"?: boolean;
	"aria-required"?: boolean;
}

export interface FieldProps {
	label: string;
	help?: ComponentChildren;
	error?: string;
	required?: boolean;
	children: (control: ControlProps) => ComponentChildren;
}

export function Field(props: FieldProps) {
	const id = useId();
	const about = [props.help && `${id}-help`, props.error && `${id}-error`].filter(Boolean).join(" ");

	return (
		<div class={`field${props.error ? " wrong" : ""}`}>
			<label for={id} class={props.required ? "required" : undefined}>
				{props.label}
			</label>
			{props.children({
				id,
				"aria-describedby": about || undefined,
				"aria-invalid": props.error ? true : undefined,
				"aria-required": props.required || undefined,
			})}
			{props.help && (
				<div class="help" id={`${id}-help`}>
					{props.help}
				</div>
			)}
			{props.error && (
				<div class="field-error" id={`${id}-error`}>
					{props.error}
				</div>
			)}
		</div>
	);
}

export interface TextProps {
	label: string;
	value: string;
	onInput: (value: string) => void;
	help?: ComponentChildren;
	error?: string;
	required?: boolean;
	type?: "text" | "password" | "number" | "search";
	placeholder?: string;
	lines?: number;
	autoComplete?: string;
}

export function TextField(props: TextProps) {
	return (
		<Field {...props}>
			{(control) =>
				props.lines ? (
					<textarea {...control} rows={props.lines} value={props.value} placeholder={props.placeholder}
						spellcheck={false} onInput={(e) => props.onInput(e.currentTarget.value)} />
				) : (
					<input {...control} type={(props.type ?? "text") as "text"} value={props.value} placeholder={props.placeholder}
						autoComplete={props.autoComplete ?? "off"} spellcheck={false}
						onInput={(e) => props.onInput(e.currentTarget.value)} />
				)
			}
		</Field>
	);
}

export interface Choice {
	value: string;
	label: string;
	disabled?: boolean;
}

export function SelectField(props: Omit<TextProps, "onInput" | "type"> & { choices: Choice[]; onChange: (value: string) => void }) {
	return (
		<Field {...props}>
			{(control) => (
				<select {...control} value={props.value} onChange={(e) => props.onChange(e.currentTarget.value)}>
					{props.choices.map((c) => (
						<option key={c.value} value={c.value} disabled={c.disabled}>
							{c.label}
						</option>
					))}
				</select>
			)}
		</Field>
	);
}

export function CheckField(props: { label: string; checked: boolean; onChange: (on: boolean) => void; help?: ComponentChildren; error?: string }) {
	const id = useId();

	return (
		<div class={`field check${props.error ? " wrong" : ""}`}>
			<label>
				<input type="checkbox" checked={props.checked} aria-describedby={props.help || props.error ? `${id}-help` : undefined}
					onChange={(e) => props.onChange(e.currentTarget.checked)} />
				{props.label}
			</label>
			{(props.help || props.error) && (
				<div class="help" id={`${id}-help`}>
					{props.help} {props.error && <span class="field-error">{props.error}</span>}
				</div>
			)}
		</div>
	);
}
