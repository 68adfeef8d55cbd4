// The sections of the page: what the navigation lists, and what is drawn for an address.
import type { FunctionComponent } from "preact";
import { AgentView } from "./views/agent";
import { AgentsView } from "./views/agents";
import { EnvironmentView } from "./views/environment";
import { EnvironmentsView } from "./views/environments";
import { IssueView } from "./views/issue";
import { IssuesView } from "./views/issues";
import { LeaseView } from "./views/lease";
import { LeasesView } from "./views/leases";
import { OverviewView } from "./views/overview";
import { PluginView } from "./views/plugin";
import { PluginsView } from "./views/plugins";
import { RunView } from "./views/run";
import { RunsView } from "./views/runs";
import { SalvagesView } from "./views/salvages";
import { SecretView } from "./views/secret";
import { SecretsView } from "./views/secrets";
import { TerminalView } from "./views/terminal";

export interface SectionDef {
	name: string;
	title: string;
	/** Without an id in the address. */
	list: FunctionComponent;
	/** With one. */
	item?: FunctionComponent<{ id: string }>;
	/** Not in the navigation. */
	hidden?: boolean;
}

export const sections: SectionDef[] = [
	{ name: "overview", title: "Overview", list: OverviewView },
	{ name: "runs", title: "Runs", list: RunsView, item: RunView },
	{ name: "issues", title: "Issues", list: IssuesView, item: IssueView },
	{ name: "agents", title: "Agents", list: AgentsView, item: AgentView },
	{ name: "environments", title: "Environments", list: EnvironmentsView, item: EnvironmentView },
	{ name: "leases", title: "Leases", list: LeasesView, item: LeaseView },
	{ name: "salvages", title: "Salvages", list: SalvagesView },
	{ name: "secrets", title: "Secrets", list: SecretsView, item: SecretView },
	{ name: "plugins", title: "Plugins", list: PluginsView, item: PluginView },
	{ name: "terminal", title: "Terminal", list: LeasesView, item: TerminalView, hidden: true },
];
