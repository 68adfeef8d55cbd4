// Plugins: what is installed, and installing.
import { useHere } from "../context";
import { useQuery } from "../live";
import type { Plugin } from "../model";
import { Loading, Problem, State, Title, When } from "../ui/basic";
import { Table } from "../ui/table";

export function pluginName(p: Plugin): string {
	return String(p.manifestJson?.displayName ?? p.pluginKey);
}

export function PluginsView() {
	const { to } = useHere();
	const { data, error, loading } = useQuery<Plugin[]>("/plugins", ["plugins"]);

	return (
		<>
			<Title note="Programs that bring environments of other providers. They run confined, as processes of their own."
				actions={<a class="button primary" href={to("/plugins/install")}>Install…</a>}>
				Plugins
			</Title>
			<Problem error={error} />
			{loading && <Loading />}
			{data && (
				<Table caption="Plugins" rows={data} id={(p) => p.id} empty={<>None is installed. <a href={to("/plugins/install")}>Install one</a> from npm or a directory.</>}
					columns={[
						{ title: "Name", main: true, sort: pluginName, cell: (p) => <a href={to(`/plugins/${p.id}`)}>{pluginName(p)}</a> },
						{ title: "State", sort: (p) => p.status, cell: (p) => <State value={p.pendingUpgrade ? "upgrade_pending" : p.status} /> },
						{ title: "Version", cell: (p) => p.version },
						{ title: "Package", wide: true, cell: (p) => <code>{p.packageName}</code> },
						{ title: "Changed", wide: true, cell: (p) => <When at={p.updatedAt} /> },
						{ title: "Problem", wide: true, cell: (p) => <span class="cut" title={p.lastError ?? ""}>{p.lastError ?? ""}</span> },
					]} />
			)}
		</>
	);
}
