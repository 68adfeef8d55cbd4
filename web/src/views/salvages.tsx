import { useHere } from "../context";
import { useQuery } from "../live";
import type { Salvage } from "../model";
import { Loading, Problem, Title } from "../ui/basic";
import { SalvageTable } from "./salvage-table";

export function SalvagesView() {
	const { at } = useHere();
	const { data, error, loading } = useQuery<Salvage[]>(at("/salvages?limit=500"), ["leases"]);

	return (
		<>
			<Title note="Changes that were saved when their place was given up before they were brought home.">Salvages</Title>
			<Problem error={error} />
			{loading && <Loading />}
			{data && <SalvageTable salvages={data} />}
		</>
	);
}
