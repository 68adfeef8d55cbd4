import { useHere } from "../context";
import { useQuery } from "../live";
import type { Environment, Lease } from "../model";
import { Loading, Problem, Title } from "../ui/basic";
import { EnvironmentTable } from "./environment-table";

export function EnvironmentsView() {
	const { at, to } = useHere();
	const environments = useQuery<Environment[]>(at("/environments"), ["environments"]);
	const leases = useQuery<Lease[]>(at("/environment-leases?living=true&limit=500"), ["leases"]);

	return (
		<>
			<Title note="Where agents work: this machine, a sandbox, another host, whatever a plugin provides."
				actions={<a class="button primary" href={to("/environments/new")}>New environment</a>}>
				Environments
			</Title>
			<Problem error={environments.error} />
			{environments.loading && <Loading />}
			{environments.data && <EnvironmentTable environments={environments.data} leases={leases.data} />}
		</>
	);
}
