// Tables: dense, sortable by their headings, cut off after a page so that thousands of rows stay quick.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Empty } from "./basic";

export interface Column<T> {
	title: string;
	cell: (row: T) => ComponentChildren;
	/** Makes the column sortable. */
	sort?: (row: T) => string | number;
	/** Not on narrow screens. */
	wide?: boolean;
	end?: boolean;
	/** The name of the row, for screen readers. */
	main?: boolean;
}

export interface TableProps<T> {
	/** What the table is about; read out, not shown. */
	caption: string;
	columns: Column<T>[];
	rows: T[];
	id: (row: T) => string;
	empty: ComponentChildren;
	page?: number;
}

export function Table<T>(props: TableProps<T>) {
	const [order, setOrder] = useState<{ column: number; down: boolean } | null>(null);
	const [shown, setShown] = useState(props.page ?? 100);
	const by = order && props.columns[order.column]?.sort;
	const rows = by ? [...props.rows].sort((a, b) => compare(by(a), by(b)) * (order.down ? -1 : 1)) : props.rows;

	if (rows.length === 0) return <Empty>{props.empty}</Empty>;
	return (
		<div class="table" tabIndex={0} role="region" aria-label={props.caption}>
			<table>
				<caption class="hidden">{props.caption}</caption>
				<thead>
					<tr>
						{props.columns.map((c, i) => (
							<Head key={c.title} column={c} order={order?.column === i ? (order.down ? "down" : "up") : null}
								onSort={() => setOrder({ column: i, down: order?.column === i ? !order.down : false })} />
						))}
					</tr>
				</thead>
				<tbody>
					{rows.slice(0, shown).map((row) => (
						<tr key={props.id(row)}>
							{props.columns.map((c) => (
								<Cell key={c.title} column={c} row={row} />
							))}
						</tr>
					))}
				</tbody>
			</table>
			{rows.length > shown && (
				<button type="button" class="button small more" onClick={() => setShown(shown + 500)}>
					Show more ({(rows.length - shown).toLocaleString("en")} left)
				</button>
			)}
		</div>
	);
}

function classes<T>(c: Column<T>): string {
	return `${c.wide ? "wide " : ""}${c.end ? "end" : ""}`;
}

function Head<T>(props: { column: Column<T>; order: "up" | "down" | null; onSort: () => void }) {
	const { column, order } = props;

	return (
		<th scope="col" class={classes(column)} aria-sort={order ? (order === "up" ? "ascending" : "descending") : undefined}>
			{column.sort ? (
				<button type="button" class="sort" onClick={props.onSort}>
					{column.title}
					<span aria-hidden="true">{order === "up" ? " ▴" : order === "down" ? " ▾" : ""}</span>
				</button>
			) : (
				column.title
			)}
		</th>
	);
}

function Cell<T>(props: { column: Column<T>; row: T }) {
	const { column, row } = props;

	if (column.main)
		return (
			<th scope="row" class={classes(column)}>
				{column.cell(row)}
			</th>
		);
	return <td class={classes(column)}>{column.cell(row)}</td>;
}

function compare(a: string | number, b: string | number): number {
	if (typeof a === "number" && typeof b === "number") return a - b;
	return String(a).localeCompare(String(b), "en", { numeric: true });
}
