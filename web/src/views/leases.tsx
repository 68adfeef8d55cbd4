import { Title } from "../ui/basic";

export function LeasesView() {
	return <Title>leases</Title>;
}
