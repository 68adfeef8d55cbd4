// The sections of the page: what the navigation lists, and what is drawn for an address.
import type { FunctionComponent } from "preact";
import { EnvironmentView } from "./views/environment";
import { EnvironmentsView } from "./views/environments";
import { LeaseView } from "./views/lease";
import { LeasesView } from "./views/leases";
import { OverviewView } from "./views/overview";
import { SalvagesView } from "./views/salvages";

export interface SectionDef {
	name: string;
	title: string;
	/** Without an id in the address. */
	list: FunctionComponent;
	/** With one. */
	item?: FunctionComponent<{ id: string }>;
}

export const sections: SectionDef[] = [
	{ name: "overview", title: "Overview", list: OverviewView },
	{ name: "environments", title: "Environments", list: EnvironmentsView, item: EnvironmentView },
	{ name: "leases", title: "Leases", list: LeasesView, item: LeaseView },
	{ name: "salvages", title: "Salvages", list: SalvagesView },
];
