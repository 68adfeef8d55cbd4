// All leases of the company.
import { useHere } from "../context";
import { useQuery } from "../live";
import type { Environment, Lease } from "../model";
import { Loading, Problem, Title } from "../ui/basic";
import { Tabs } from "../ui/tabs";
import { namesOf } from "./environment-table";
import { isLiving, LeaseTable } from "./lease-table";

export function LeasesView() {
	return (
		<>
			<Title note="A lease is one holder's use of an environment.">Leases</Title>
			<Tabs label="Which leases" tabs={[
				{ id: "living", title: "Living", view: () => <List key="living" living /> },
				{ id: "ended", title: "Ended", view: () => <List key="ended" /> },
			]} />
		</>
	);
}

function List(props: { living?: boolean }) {
	const { at, to } = useHere();
	const environments = useQuery<Environment[]>(at("/environments"), ["environments"]);
	const leases = useQuery<Lease[]>(at(`/environment-leases?limit=500${props.living ? "&living=true" : ""}`), ["leases"]);

	if (leases.loading) return <Loading />;
	return (
		<>
			<Problem error={leases.error} />
			{leases.data && (
				<LeaseTable leases={leases.data.filter((l) => isLiving(l) === Boolean(props.living))} names={namesOf(environments.data)} ended={!props.living}
					empty={props.living ? <>Nothing is leased. Runs lease by themselves; to do it by hand, choose an <a href={to("/environments")}>environment</a>.</>
						: "No lease has ended yet."} />
			)}
		</>
	);
}
