// Nothing is there yet: the first company.
import { useState } from "preact/hooks";
import { api } from "../api";
import { refresh } from "../live";
import type { Company } from "../model";
import { navigate } from "../router";
import { Problem, Title } from "../ui/basic";
import { TextField } from "../ui/field";

export function FirstCompany() {
	const [name, setName] = useState("");
	const [error, setError] = useState<unknown>(null);

	async function submit(e: Event) {
		e.preventDefault();
		setError(null);
		try {
			const made = await api.post<Company>("/companies", { name });

			navigate(`/${encodeURIComponent(made.issuePrefix)}`, true);
			refresh(["companies"]);
		} catch (problem) {
			setError(problem);
		}
	}

	return (
		<>
			<Title>Welcome</Title>
			<form class="form narrow" onSubmit={(e) => void submit(e)} noValidate>
				<p>Environments, agents and secrets belong to a company. Name yours to begin.</p>
				<TextField label="Company name" value={name} onInput={setName} required />
				<Problem error={error} />
				<div class="form-foot">
					<button type="submit" class="button primary">
						Create company
					</button>
				</div>
			</form>
		</>
	);
}
