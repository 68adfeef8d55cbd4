import { Title } from "../ui/basic";

export function LeaseView(props: { id: string }) {
	return <Title>{props.id}</Title>;
}
