// The company that is looked at, for all views beneath.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Company } from "./model";

export const CompanyContext = createContext<Company | null>(null);

export interface Here {
	company: Company;
	/** Path of the API: /companies/ID… */
	at: (path: string) => string;
	/** Address in the page: /PREFIX… */
	to: (path: string) => string;
}

export function useHere(): Here {
	const company = useContext(CompanyContext);

	if (!company) throw new Error("no company");
	return {
		company,
		at: (path) => `/companies/${company.id}${path}`,
		to: (path) => `/${encodeURIComponent(company.issuePrefix)}${path}`,
	};
}
