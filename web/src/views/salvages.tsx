import { Title } from "../ui/basic";

export function SalvagesView() {
	return <Title>salvages</Title>;
}
