import { Title } from "../ui/basic";

export function EnvironmentView(props: { id: string }) {
	return <Title>{props.id}</Title>;
}
