// Tables that sort, filter, and stay usable with many rows.

import { clear, h, stateful, update } from "./dom.js";
import { number } from "./format.js";

// Up to this number, all rows are in the page, so that the reader can search in it.
const MAX_WHOLE = 200;
// Rows that are rendered above and below the visible ones.
const MARGIN_ROWS = 12;
const USUAL_ROW_PX = 36;

const ORDER = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function compare(a, b, direction) {
  // Unknown values come last in both directions.
  const isUnknown = (value) => value === null || value === undefined || Number.isNaN(value);
  if (isUnknown(a) || isUnknown(b)) return isUnknown(a) - isUnknown(b);
  const order = typeof a === "number" && typeof b === "number" ? a - b : ORDER.compare(String(a), String(b));
  return order * direction;
}

let tableCount = 0;

/**
 * Creates a table.
 *
 * - `columns`: `{ key, label, align: "end", value(row), cell(row), sort: false, title }`. `value` is
 *   what the column sorts and filters by (usually `row[key]`), `cell` what it shows (usually the
 *   value). The first column names the row.
 * - `rows`, and `rowKey(row)` (usually `row.id`), which is unique.
 * - `label`: the name of the table. `empty`: a node or text that is shown if there are no rows.
 * - `sortBy`: a key, with `-` in front for the largest first; `onSort(sortBy)` tells a change.
 * - `filter`: whether to offer a filter; `filterBy` is its text at first, `onFilter(text)` tells a
 *   change.
 * - `className`: classes of the element. `bounded` limits its height; `stacked` puts the cells of a
 *   row below each other in a narrow page.
 *
 * Returns an element with `update(rows)`, which changes only what differs.
 */
export function table({
  columns, rows = [], rowKey = (row) => row.id, label, empty = "Nothing to show.", sortBy = "",
  onSort = () => {}, filter = false, filterBy = "", onFilter = () => {}, className = "",
}) {
  const id = `table-${++tableCount}`;
  const valueOf = (column, row) => (column.value ? column.value(row) : row[column.key]);
  let all = rows;
  let visible = [];
  let order = sortBy;
  let wanted = filterBy;
  let rowPx = USUAL_ROW_PX;
  let frame = 0;

  const heads = columns.map((column) => h("th", {
    scope: "col", class: column.align === "end" ? "end" : null, title: column.title,
  }, column.sort === false
    ? column.label
    : h("button", { type: "button", on: { click: () => sort(column) } },
      column.label, h("span", { class: "arrow", "aria-hidden": "true" }))));
  const body = h("tbody");
  const grid = h("table", null,
    h("caption", { class: "hidden-text" }, label),
    h("thead", null, h("tr", { "aria-rowindex": "1" }, heads)),
    body);
  const scroll = h("div", { class: "scroll", role: "group", "aria-label": label, on: { scroll: onScroll } }, grid);
  const nothing = h("div", { hidden: true });
  const count = h("span", { class: "dim count" });
  const input = filter ? h("input", {
    type: "search", id, value: filterBy, placeholder: "Filter", autocomplete: "off", spellcheck: "false",
    on: {
      input: () => { wanted = input.value; onFilter(wanted.trim()); scroll.scrollTop = 0; refresh(); },
      // The count is read aloud while the reader filters, and not with each event.
      focus: () => count.setAttribute("aria-live", "polite"),
      blur: () => count.removeAttribute("aria-live"),
    },
  }) : null;
  const box = stateful(h("div", { class: `table-box ${className}` },
    filter ? h("div", { class: "row table-tools" },
      h("label", { for: id, class: "hidden-text" }, `Filter: ${label}`), input, count) : null,
    scroll, nothing));

  function sort(column) {
    const sample = all.map((row) => valueOf(column, row)).find((value) => value !== null && value !== undefined);
    const first = typeof sample === "number" ? `-${column.key}` : column.key;
    const second = typeof sample === "number" ? column.key : `-${column.key}`;
    order = order === first ? second : first;
    onSort(order);
    refresh();
  }

  function matches(row, words) {
    const content = columns.map((column) => valueOf(column, row) ?? "").join("\n").toLowerCase();
    return words.every((word) => content.includes(word));
  }

  function refresh() {
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    visible = words.length ? all.filter((row) => matches(row, words)) : [...all];
    const key = order.replace(/^-/, "");
    const column = columns.find((one) => one.key === key);
    if (column) {
      const direction = order.startsWith("-") ? -1 : 1;
      const values = new Map(visible.map((row) => [row, valueOf(column, row)]));
      visible.sort((a, b) => compare(values.get(a), values.get(b), direction));
    }
    columns.forEach((one, i) => {
      if (one.key === key) heads[i].setAttribute("aria-sort", order.startsWith("-") ? "descending" : "ascending");
      else heads[i].removeAttribute("aria-sort");
    });
    count.textContent = words.length ? `${number(visible.length)} of ${number(all.length)}` : number(all.length);
    scroll.hidden = visible.length === 0;
    nothing.hidden = visible.length > 0;
    if (visible.length === 0) {
      if (all.length) clear(nothing, h("p", { class: "dim" }, `No row matches "${wanted.trim()}".`));
      else clear(nothing, empty instanceof Node ? empty : h("p", { class: "dim" }, empty));
    }
    render();
  }

  function render() {
    const isWhole = visible.length <= MAX_WHOLE;
    scroll.classList.toggle("virtual", !isWhole);
    let from = 0;
    let to = visible.length;
    if (isWhole) {
      grid.removeAttribute("aria-rowcount");
    } else {
      grid.setAttribute("aria-rowcount", String(visible.length + 1));
      const height = scroll.clientHeight || 600;
      from = Math.max(0, Math.floor(scroll.scrollTop / rowPx) - MARGIN_ROWS);
      to = Math.min(visible.length, from + Math.ceil(height / rowPx) + 2 * MARGIN_ROWS);
    }
    const shown = visible.slice(from, to).map((row, i) => rowNode(row, isWhole ? null : from + i + 2));
    update(body, spacer("above", from), shown, spacer("below", visible.length - to));
    if (!isWhole) keepWidths();
  }

  function spacer(place, n) {
    return n === 0 ? null : h("tr", { class: "spacer", "data-key": `spacer-${place}`, "aria-hidden": "true" },
      h("td", { colspan: columns.length, style: { height: `${n * rowPx}px` } }));
  }

  function rowNode(row, index) {
    return h("tr", { "data-key": `row-${rowKey(row)}`, "aria-rowindex": index }, columns.map((column, i) => {
      const shown = column.cell ? column.cell(row) : valueOf(column, row) ?? "–";
      // A narrow page has no heads above the cells.
      const attributes = { class: column.align === "end" ? "end" : null, "data-label": column.label };
      return i === 0 ? h("th", { ...attributes, scope: "row" }, shown) : h("td", attributes, shown);
    }));
  }

  /** Measures the rows, and keeps columns from becoming narrower while the reader scrolls. */
  function keepWidths() {
    const row = body.querySelector("tr:not(.spacer)");
    if (!row?.offsetHeight) return;
    rowPx = row.getBoundingClientRect().height;
    for (const head of heads) {
      const width = head.offsetWidth;
      if (width > (parseFloat(head.style.minWidth) || 0)) head.style.minWidth = `${width}px`;
    }
  }

  function onScroll() {
    if (visible.length <= MAX_WHOLE || frame) return;
    frame = requestAnimationFrame(() => { frame = 0; render(); });
  }

  box.update = (next) => { all = next; refresh(); };
  // The height of the visible part is known only in the page.
  const observer = new ResizeObserver(() => {
    if (visible.length > MAX_WHOLE) render();
    // What scrolls can be reached by keyboard; what does not scroll is no stop on the way.
    const scrolls = scroll.scrollWidth > scroll.clientWidth || scroll.scrollHeight > scroll.clientHeight;
    if (scrolls) scroll.tabIndex = 0;
    else scroll.removeAttribute("tabindex");
  });
  observer.observe(scroll);
  observer.observe(grid);
  refresh();
  return box;
}
