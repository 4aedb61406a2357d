// Small charts as SVG, each with its numbers as text for screen readers.

import { h, s, text } from "./dom.js";
import { number, percent } from "./format.js";

/** Creates a table that only screen readers see. */
function hiddenTable(caption, heads, rows) {
  return h("div", { class: "hidden-text" }, h("table", null,
    h("caption", null, caption),
    h("thead", null, h("tr", null, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", null, rows.map((row) => h("tr", null, row.map((cell) => h("td", null, cell)))))));
}

function figure(kind, label, picture, ...more) {
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", text(label));
  return h("figure", { class: `chart ${kind}` }, picture, more);
}

/**
 * Creates horizontal bars. `rows`: `{ label (text or node), value, title, shown, href, kind }`;
 * `shown` is the text of the value. `max` is the value of a whole bar, `unit` follows the values
 * (`"%"`: values are shares from 0 to 1).
 */
export function bars({ rows, max, unit = "", label = "Bars" }) {
  const whole = max ?? Math.max(...rows.map((row) => row.value ?? 0), 0);
  const shownValue = (row) => row.shown ?? (unit === "%" ? percent(row.value) : `${number(row.value)} ${unit}`.trim());
  return h("table", { class: "chart bars" },
    h("caption", { class: "hidden-text" }, label),
    h("tbody", null, rows.map((row) => {
      const width = whole > 0 ? Math.min(100, 100 * (row.value ?? 0) / whole) : 0;
      return h("tr", { title: row.title },
        h("th", { scope: "row" }, row.href ? h("a", { href: row.href }, row.label) : row.label),
        h("td", { class: "bar", "aria-hidden": "true" },
          s("svg", { class: row.kind, width: "100%", height: "12" },
            s("rect", { class: "track", width: "100%", height: "12", rx: "3" }),
            s("rect", { class: "fill", width: `${width.toFixed(2)}%`, height: "12", rx: "3" }))),
        h("td", { class: "end" }, shownValue(row)));
    })));
}

const WIDTH = 600;
const HEIGHT = 160;

/**
 * Creates a line through points `{ x, y, title }`. `x` are numbers, or labels at equal distances;
 * an unknown `y` (`null`) leaves a gap. `yMax` is the upper end of the scale.
 */
export function line({ points, label, yFormat = number, xFormat = String, yMax, xLabel = "", yLabel = "" }) {
  const isNumeric = points.every((point) => typeof point.x === "number");
  const xs = points.map((point, i) => (isNumeric ? point.x : i));
  const [xMin, xMax] = [Math.min(...xs), Math.max(...xs)];
  const ys = points.map((point) => point.y ?? 0);
  const bottom = Math.min(0, ...ys);
  const top = yMax ?? (Math.max(0, ...ys) || (bottom < 0 ? 0 : 1));
  const px = (i) => (xMax > xMin ? (xs[i] - xMin) / (xMax - xMin) : 0.5) * WIDTH;
  const py = (y) => HEIGHT * (1 - Math.max(0, Math.min(1, (y - bottom) / (top - bottom))));
  let path = "";
  let isDrawing = false;
  points.forEach((point, i) => {
    const isKnown = point.y !== null && point.y !== undefined;
    if (isKnown) path += `${isDrawing ? "L" : "M"}${px(i).toFixed(1)} ${py(point.y).toFixed(1)}`;
    isDrawing = isKnown;
  });
  const known = points.map((point, i) => ({ point, i })).filter(({ point }) => point.y !== null && point.y !== undefined);
  // The path is stretched to the width of the chart; dots are placed in percent, and stay round.
  const picture = s("svg", { width: "100%", height: HEIGHT, class: "plot" },
    [0, 0.5, 1].map((share) => s("line", { class: "grid", x1: "0", x2: "100%", y1: `${100 * share}%`, y2: `${100 * share}%` })),
    bottom < 0 ? s("line", { class: "zero", x1: "0", x2: "100%", y1: py(0), y2: py(0) }) : null,
    s("svg", { width: "100%", height: "100%", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" },
      s("path", { class: "line", d: path })),
    known.map(({ point, i }) => s("circle", {
      class: "dot", r: known.length > 60 ? 1.5 : 3, cx: `${(100 * px(i) / WIDTH).toFixed(2)}%`, cy: py(point.y).toFixed(1),
    }, s("title", null, point.title ?? `${xFormat(point.x)}: ${yFormat(point.y)}`))));
  const node = figure("line-chart", label, picture,
    h("div", { class: "y-axis dim", "aria-hidden": "true" }, [1, 0.5, 0].map((share) => h("span", null, yFormat(bottom + (top - bottom) * share)))),
    h("div", { class: "x-axis dim", "aria-hidden": "true" }, axisLabels(points, xFormat)),
    hiddenTable(label, [xLabel || "x", yLabel || "y"], known.map(({ point }) => [xFormat(point.x), yFormat(point.y)])));
  if (xLabel || yLabel) node.append(h("figcaption", { class: "dim" }, [yLabel, xLabel].filter(Boolean).join(", by ")));
  return node;
}

const MAX_RADIUS = 11;

/**
 * Creates points `{ x, y, weight, title }` of shares from 0 to 1, with the diagonal where both are
 * equal. The area of a point grows with its weight.
 */
export function diagonal({ points, label, weightLabel, xLabel, yLabel }) {
  const most = Math.max(...points.map((point) => point.weight), 1);
  const place = (share) => `${(100 * Math.max(0, Math.min(1, share))).toFixed(2)}%`;
  // Small points are drawn over large ones.
  const ordered = [...points].sort((a, b) => b.weight - a.weight);
  const picture = s("svg", { width: "100%", height: 1.4 * HEIGHT, class: "plot" },
    [0, 0.5, 1].map((share) => s("line", { class: "grid", x1: "0", x2: "100%", y1: place(share), y2: place(share) })),
    s("line", { class: "zero", x1: "0", x2: "100%", y1: "100%", y2: "0", "stroke-dasharray": "4 4" }),
    ordered.map((point) => s("circle", {
      class: "dot", "fill-opacity": "0.75", cx: place(point.x), cy: place(1 - point.y),
      r: Math.max(3, MAX_RADIUS * Math.sqrt(point.weight / most)).toFixed(1),
    }, s("title", null, point.title))));
  const ends = [0, 0.5, 1].map((share) => percent(share));
  return figure("line-chart", label, picture,
    h("div", { class: "y-axis dim", "aria-hidden": "true" }, [...ends].reverse().map((end) => h("span", null, end))),
    h("div", { class: "x-axis dim", "aria-hidden": "true" }, ends.map((end) => h("span", null, end))),
    hiddenTable(label, [xLabel, yLabel, weightLabel], points.map((point) => [percent(point.x), percent(point.y), number(point.weight)])),
    h("figcaption", { class: "dim" }, `${yLabel}, by ${xLabel}`));
}

function axisLabels(points, xFormat) {
  if (points.length === 0) return [];
  if (points.length === 1) return [h("span", null, xFormat(points[0].x))];
  return [points[0], points[Math.floor((points.length - 1) / 2)], points.at(-1)]
    .filter((point, i, all) => all.indexOf(point) === i)
    .map((point) => h("span", null, xFormat(point.x)));
}

/**
 * Creates a matrix. `rows` and `columns` are `{ label, title, href }`; `value(row, column)` is a
 * number from 0 to 1, or `null` for an empty cell; `title(row, column)` explains it. Both get the
 * objects of `rows` and `columns`.
 */
export function matrix({ rows, columns, value, title, shown = percent, label = "Matrix" }) {
  const head = (item, i) => (item.href
    ? h("a", { href: item.href, title: item.title ?? item.label }, item.label)
    : h("span", { title: item.title ?? item.label }, item.label ?? i));
  return h("div", { class: "chart matrix scroll", role: "group", "aria-label": label, tabindex: "0" },
    h("table", null,
      h("caption", { class: "hidden-text" }, label),
      h("thead", null, h("tr", null,
        h("td", null),
        columns.map((column, i) => h("th", { scope: "col" }, h("div", null, head(column, i)))))),
      h("tbody", null, rows.map((row, i) => h("tr", null,
        h("th", { scope: "row" }, head(row, i)),
        columns.map((column) => {
          const share = value(row, column);
          if (!share) return h("td", null);
          return h("td", {
            title: title?.(row, column),
            class: share > 0.55 ? "strong" : null,
            style: { "--share": `${Math.round(8 + 92 * Math.min(1, share))}%` },
          }, shown(share));
        }))))));
}

const GRAPH_WIDTH = 900;
const GRAPH_HEIGHT = 560;
const ROUNDS = 220;

/** Places the nodes: edges pull, nodes push each other away. The same graph looks the same. */
function layout(nodes, edges) {
  const places = nodes.map((node, i) => {
    const angle = (2 * Math.PI * i) / nodes.length;
    return { x: Math.cos(angle), y: Math.sin(angle), dx: 0, dy: 0 };
  });
  const index = new Map(nodes.map((node, i) => [node.id, i]));
  const ideal = 1.6 / Math.sqrt(nodes.length || 1);
  for (let round = 0; round < ROUNDS; round += 1) {
    const heat = 0.12 * (1 - round / ROUNDS);
    for (const place of places) {
      place.dx = -place.x * 0.08;
      place.dy = -place.y * 0.08;
    }
    for (let a = 0; a < places.length; a += 1) {
      for (let b = a + 1; b < places.length; b += 1) {
        const x = places[a].x - places[b].x;
        const y = places[a].y - places[b].y;
        const square = Math.max(0.0004, x * x + y * y);
        const push = (ideal * ideal) / square;
        places[a].dx += x * push; places[a].dy += y * push;
        places[b].dx -= x * push; places[b].dy -= y * push;
      }
    }
    for (const edge of edges) {
      const [a, b] = [places[index.get(edge.from)], places[index.get(edge.to)]];
      if (!a || !b || a === b) continue;
      const x = a.x - b.x;
      const y = a.y - b.y;
      const pull = Math.sqrt(x * x + y * y) / ideal / 2;
      a.dx -= x * pull; a.dy -= y * pull;
      b.dx += x * pull; b.dy += y * pull;
    }
    for (const place of places) {
      const size = Math.hypot(place.dx, place.dy) || 1;
      place.x += (place.dx / size) * Math.min(size, heat);
      place.y += (place.dy / size) * Math.min(size, heat);
    }
  }
  const fit = (key, size, margin) => {
    const values = places.map((place) => place[key]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    for (const place of places) place[key] = margin + ((place[key] - low) / (high - low || 1)) * (size - 2 * margin);
  };
  fit("x", GRAPH_WIDTH, 90);
  fit("y", GRAPH_HEIGHT, 30);
  return { places, index };
}

let graphCount = 0;

/** Creates a graph of `nodes` `{ id, label, title, href }` and `edges` `{ from, to, weight, title }`. */
export function graph({ nodes, edges, label = "Graph" }) {
  const { places, index } = layout(nodes, edges);
  const most = Math.max(...edges.map((edge) => edge.weight), 1e-9);
  const arrow = `arrow-${++graphCount}`;
  const picture = s("svg", { viewBox: `0 0 ${GRAPH_WIDTH} ${GRAPH_HEIGHT}`, width: "100%", class: "net" },
    s("defs", null, s("marker", {
      id: arrow, viewBox: "0 0 8 8", refX: "8", refY: "4", markerWidth: "8", markerHeight: "8",
      markerUnits: "userSpaceOnUse", orient: "auto-start-reverse",
    }, s("path", { d: "M0 0L8 4L0 8z" }))),
    edges.map((edge) => {
      const [a, b] = [places[index.get(edge.from)], places[index.get(edge.to)]];
      if (!a || !b) return null;
      return s("path", {
        class: "edge", d: edgePath(a, b), "stroke-width": (1 + 4 * edge.weight / most).toFixed(1), "marker-end": `url(#${arrow})`,
      }, s("title", null, edge.title ?? `${edge.from} to ${edge.to}: ${number(edge.weight)}`));
    }),
    nodes.map((node, i) => {
      const shape = [
        s("title", null, node.title ?? node.label),
        s("circle", { cx: places[i].x.toFixed(1), cy: places[i].y.toFixed(1), r: "5" }),
        s("text", { x: places[i].x.toFixed(1), y: (places[i].y - 9).toFixed(1), "text-anchor": "middle" }, node.label.slice(0, 28)),
      ];
      return node.href ? s("a", { class: "node", href: node.href }, shape) : s("g", { class: "node" }, shape);
    }));
  const node = h("figure", { class: "chart graph" }, picture, hiddenTable(label, ["from", "to", "weight"],
    edges.map((edge) => [edge.from, edge.to, number(edge.weight)])));
  // Not an image: the nodes are links.
  picture.setAttribute("role", "group");
  picture.setAttribute("aria-label", text(label));
  return node;
}

function edgePath(a, b) {
  if (a === b) {
    const [x, y] = [a.x, a.y];
    return `M${(x + 4).toFixed(1)} ${(y + 4).toFixed(1)}c24 22 -32 22 -9 0`;
  }
  const [x, y] = [b.x - a.x, b.y - a.y];
  const size = Math.hypot(x, y) || 1;
  const [endX, endY] = [b.x - (x / size) * 7, b.y - (y / size) * 7];
  // Both directions between two nodes stay apart.
  const [bendX, bendY] = [(a.x + b.x) / 2 - y * 0.12, (a.y + b.y) / 2 + x * 0.12];
  return `M${a.x.toFixed(1)} ${a.y.toFixed(1)}Q${bendX.toFixed(1)} ${bendY.toFixed(1)} ${endX.toFixed(1)} ${endY.toFixed(1)}`;
}
