// The page: who is asking, which company, which view.
import { render } from "preact";
import { useEffect } from "preact/hooks";
import { api, session, signOut } from "./api";
import { CompanyContext } from "./context";
import { follow, forgetAll, useQuery } from "./live";
import type { Company } from "./model";
import { navigate, route, startRouter } from "./router";
import { sections } from "./sections";
import { useStore } from "./store";
import "./style.css";
import { Loading, Problem, Title } from "./ui/basic";
import { ConnectionBar } from "./ui/connection";
import { ThemeButton } from "./ui/theme";
import { Toasts } from "./ui/toast";
import { FirstCompany } from "./views/first";
import { SignIn } from "./views/sign-in";

function Page() {
	const { token, needsKey } = useStore(session);

	useEffect(() => {
		if (needsKey !== null) {
			follow(null);
			forgetAll();
		}
	}, [needsKey]);
	if (needsKey !== null) return <SignIn why={needsKey} />;
	return <SignedIn key={token ?? ""} />;
}

function SignedIn() {
	const here = useStore(route);
	const { data, error, loading } = useQuery<Company[]>("/companies", ["companies"]);
	const companies = data?.filter((c) => c.status !== "archived") ?? [];
	const company = companies.find((c) => c.issuePrefix.toLowerCase() === here.company?.toLowerCase()) ?? null;

	useEffect(() => {
		const first = companies[0];

		if (!company && first && here.company === null) navigate(`/${encodeURIComponent(first.issuePrefix)}`, true);
	}, [company?.id, data]);
	useEffect(() => follow(company?.id ?? null), [company?.id]);

	return (
		<div class="shell">
			<a class="skip" href="#main">
				Skip to content
			</a>
			<Side companies={companies} company={company} section={here.section} />
			<div class="body">
				<ConnectionBar />
				<main id="main">
					{loading && <Loading />}
					<Problem error={error} />
					{data && companies.length === 0 && <FirstCompany />}
					{data && companies.length > 0 && !company && here.company !== null && (
						<NoCompany prefix={here.company} companies={companies} />
					)}
					{company && (
						<CompanyContext.Provider value={company}>
							<View key={company.id} section={here.section} id={here.id} />
						</CompanyContext.Provider>
					)}
				</main>
			</div>
			<Toasts />
		</div>
	);
}

function View(props: { section: string; id: string | null }) {
	const section = sections.find((s) => s.name === props.section);

	useEffect(() => {
		document.title = `${section?.title ?? "Not found"} · Berth`;
	}, [section]);
	if (section && props.id === null) return <section.list />;
	if (section?.item && props.id !== null) return <section.item key={props.id} id={props.id} />;
	return (
		<>
			<Title>Not found</Title>
			<p>There is nothing at this address. The navigation leads to what there is.</p>
		</>
	);
}

function NoCompany(props: { prefix: string; companies: Company[] }) {
	return (
		<>
			<Title>No company “{props.prefix}”</Title>
			<p>It does not exist, or you may not see it. These you may:</p>
			<ul>
				{props.companies.map((c) => (
					<li key={c.id}>
						<a href={`/${encodeURIComponent(c.issuePrefix)}`}>{c.name}</a>
					</li>
				))}
			</ul>
		</>
	);
}

function Side(props: { companies: Company[]; company: Company | null; section: string }) {
	const { token } = useStore(session);
	const prefix = props.company && encodeURIComponent(props.company.issuePrefix);
	const shown = props.section === "terminal" ? "leases" : props.section;

	// On a phone the sections are a line that is longer than the screen.
	useEffect(() => {
		document.querySelector(".side nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
	}, [props.section, prefix]);
	return (
		<header class="side">
			<a class="brand" href={prefix ? `/${prefix}` : "/"}>
				<Mark /> Berth
			</a>
			{props.company && (
				<select class="company" aria-label="Company" value={props.company.issuePrefix}
					onChange={(e) => navigate(`/${encodeURIComponent(e.currentTarget.value)}/${props.section}`)}>
					{props.companies.map((c) => (
						<option key={c.id} value={c.issuePrefix}>
							{c.name}
						</option>
					))}
				</select>
			)}
			{prefix && (
				<nav aria-label="Sections">
					{sections.filter((s) => !s.hidden).map((s) => (
						<a key={s.name} href={`/${prefix}/${s.name}`} aria-current={s.name === shown ? "page" : undefined}>
							{s.title}
						</a>
					))}
				</nav>
			)}
			<div class="side-foot">
				<ThemeButton />
				{token && (
					<button type="button" class="link" onClick={() => signOut()}>
						Sign out
					</button>
				)}
			</div>
		</header>
	);
}

function Mark() {
	return (
		<svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
			<rect width="32" height="32" rx="7" class="mark-back" />
			<path d="M7 19h18l-3 6H10zM15 7h2v9h-2zM18 9l6 7h-6z" class="mark-ship" />
		</svg>
	);
}

// Why a key is needed; null: it is not. Nobody in particular may do nothing in authenticated mode, where the refusals
// (403) would not say that a key helps; in local trusted mode only the operator is told a version.
async function needsKey(): Promise<string | null> {
	if (session.get().token !== null) return null;
	const health = await api.get<{ deploymentMode?: string; version?: string }>("/health").catch(() => null);

	if (health?.deploymentMode === "authenticated") return "This instance asks for a key.";
	return health && health.version === undefined ? "This daemon trusts the user who runs it, and you are another one." : null;
}

startRouter();
const why = await needsKey();

if (why !== null) signOut(why);
render(<Page />, document.getElementById("page") as HTMLElement);
