"use strict";

// What the reader has chosen; the data may be replaced under it while runs are under way.
const chosen = { stream: 0, hidden: new Map(), view: "error", sort: new Map(), inside: null, shot: null, open: new Set() };
let data = JSON.parse(document.getElementById("data").textContent);
const at = id => document.getElementById(id);

// Small parts

const SVG = "http://www.w3.org/2000/svg";
function make(tag, attributes = {}, ...children) {
  const svg = /^(svg|g|path|line|rect|circle|text|title|polygon)$/.test(tag);
  const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("aria-") && value != null) { node.setAttribute(name, `${value}`); continue; }
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "html") node.innerHTML = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}
const fill = (node, ...children) => node.replaceChildren(...children.filter(child => child != null));
const number = value => value.toLocaleString("en");
const percent = value => `${value.toFixed(1)} %`;
const colour = method => `var(--m-${Object.keys(data.palette).indexOf(method)})`;
const DASHES = ["", "7 3", "2 3", "10 3 2 3", "4 2 1 2 1 2"];
const dash = row => DASHES[row.variant % DASHES.length];

// A method has a shape too, for those who cannot tell its colour.
const SHAPES = ["circle", "square", "triangle", "diamond", "down", "plus"];
function shape(method, x, y, size = 5) {
  const kind = SHAPES[data.palette[method].shape % SHAPES.length];
  const points = {
    square: [[-1, -1], [1, -1], [1, 1], [-1, 1]], triangle: [[0, -1.2], [1.2, 1], [-1.2, 1]],
    diamond: [[0, -1.35], [1.35, 0], [0, 1.35], [-1.35, 0]], down: [[0, 1.2], [1.2, -1], [-1.2, -1]],
    plus: [[-.5, -1.3], [.5, -1.3], [.5, -.5], [1.3, -.5], [1.3, .5], [.5, .5], [.5, 1.3], [-.5, 1.3], [-.5, .5], [-1.3, .5], [-1.3, -.5], [-.5, -.5]],
  }[kind];
  const look = { fill: colour(method), stroke: "var(--ground)", "stroke-width": 1.2 };
  if (!points) return make("circle", { cx: x, cy: y, r: size, ...look });
  return make("polygon", { points: points.map(([a, b]) => `${x + a * size},${y + b * size}`).join(" "), ...look });
}
function swatch(row) {
  return make("svg", { class: "swatch", viewBox: "0 0 26 12", "aria-hidden": "true" },
    make("line", { x1: 0, x2: 26, y1: 6, y2: 6, stroke: colour(row.method), "stroke-width": row.is_source ? 2 : 2.6, "stroke-dasharray": dash(row) }),
    shape(row.method, 13, 6, 3.6));
}

const named = (row, name) => make("span", { class: "named" }, swatch(row), name);

const tip = at("tip");
function showTip(content, x, y) {
  fill(tip, ...content);
  tip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tip;
  const left = x + 16 + width > scrollX + document.documentElement.clientWidth - 6 ? x - width - 14 : x + 16;
  tip.style.left = `${Math.max(scrollX + 6, left)}px`;
  tip.style.top = `${Math.max(scrollY + 6, Math.min(y - height / 2, scrollY + innerHeight - height - 6))}px`;
}
const hideTip = () => { tip.hidden = true; };
const tipTable = (title, lines) => [make("h4", {}, title), make("table", {}, make("tbody", {},
  ...lines.map(([mark, name, value]) => make("tr", {}, make("td", {}, ...[mark, name].filter(Boolean)), make("td", {}, value)))))];

function ticks(low, high, about) {
  const rough = (high - low) / Math.max(1, about), power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 2.5, 5, 10].map(f => f * power).find(s => s >= rough) || power;
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(+value.toFixed(6));
  return found;
}
const short = value => value >= 1e6 ? `${value / 1e6}M` : value >= 1000 ? `${+(value / 1000).toFixed(1)}k` : `${value}`;

// A frame with axes; x and y turn figures into places.
function frame(node, { height, left = 42, right = 12, top = 10, bottom = 34, x: [x0, x1], y: [y0, y1], xLabel, yLabel, xTicks, yTicks, xText = short, label, log = false }) {
  const width = Math.max(260, node.clientWidth || 600);
  const scale = log ? Math.log2 : value => value;
  const x = value => left + (scale(value) - scale(x0)) / ((scale(x1) - scale(x0)) || 1) * (width - left - right);
  const y = value => height - bottom - (value - y0) / ((y1 - y0) || 1) * (height - top - bottom);
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label });
  for (const value of yTicks || ticks(y0, y1, height / 48)) {
    svg.append(make("line", { class: value === 0 ? "base" : "axis", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      make("text", { x: left - 7, y: y(value) + 4, "text-anchor": "end" }, `${value}`));
  }
  for (const value of xTicks || ticks(x0, x1, width / 110)) {
    svg.append(make("text", { x: x(value), y: height - bottom + 16, "text-anchor": "middle" }, xText(value)));
  }
  svg.append(make("line", { class: "base", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
  if (xLabel) svg.append(make("text", { x: width - right, y: height - 3, "text-anchor": "end" }, xLabel));
  if (yLabel) svg.append(make("text", { x: left, y: top - 2 - (top > 20 ? top - 12 : 0), "text-anchor": "start" }, yLabel));
  return { svg, x, y, width, height, left, right, top, bottom };
}
const path = points => points.map(([a, b], i) => `${i ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
function bandPath(upper, lower) { return `${path(upper)}L${path([...lower].reverse()).slice(1)}Z`; }

function boundaries(stream, box, named) {
  if (!stream.ends) return;
  let start = 0;
  stream.ends.forEach((end, i) => {
    if (i < stream.ends.length - 1)
      box.svg.append(make("line", { class: "domain", x1: box.x(end), x2: box.x(end), y1: named ? box.top - 4 : box.top, y2: box.height - box.bottom }));
    if (named) {
      const room = box.x(end) - box.x(start), middle = (box.x(end) + box.x(start)) / 2;
      const upright = room < 40;
      box.svg.append(make("text", upright
        ? { x: 0, y: 0, transform: `translate(${middle + 4} ${box.top - 6}) rotate(-90)`, "text-anchor": "start" }
        : { x: middle, y: box.top - 8, "text-anchor": "middle" }, stream.short[i]));
    }
    start = end;
  });
}
const domainAt = (stream, image) => {
  if (!stream.ends) return "all domains";
  const i = stream.ends.findIndex(end => image <= end);
  return stream.domains[i < 0 ? stream.domains.length - 1 : i].replaceAll("_", " ");
};

// Follow pointer and arrow keys over places along x.
function follow(node, box, places, show) {
  const cursor = make("line", { class: "cursor", y1: box.top, y2: box.height - box.bottom, visibility: "hidden" });
  box.svg.append(cursor);
  node.tabIndex = 0;
  let index = -1;
  const go = (i, y) => {
    index = Math.max(0, Math.min(places.length - 1, i));
    cursor.setAttribute("x1", places[index]); cursor.setAttribute("x2", places[index]);
    cursor.setAttribute("visibility", "visible");
    const rect = box.svg.getBoundingClientRect(), ratio = rect.width / box.width;
    showTip(show(index), rect.left + scrollX + places[index] * ratio, scrollY + (y ?? rect.top + rect.height / 2));
  };
  const end = () => { cursor.setAttribute("visibility", "hidden"); hideTip(); };
  box.svg.addEventListener("pointermove", event => {
    const rect = box.svg.getBoundingClientRect(), x = (event.clientX - rect.left) * box.width / rect.width;
    let best = 0;
    places.forEach((place, i) => { if (Math.abs(place - x) < Math.abs(places[best] - x)) best = i; });
    go(best, event.clientY);
  });
  box.svg.addEventListener("pointerleave", end);
  node.onblur = end;
  node.onkeydown = event => {
    const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (step) { event.preventDefault(); go(index < 0 ? 0 : index + step); }
    else if (event.key === "Escape") end();
  };
}

// The table

const rowOf = id => data.streams[+id.split(".")[0]].rows.find(row => row.id === id);
function cellOf(row) {
  if (!row) return make("td");
  if (row.error === undefined) return make("td", { class: "muted" }, "under way");
  const words = [row.error.toFixed(1)];
  if (row.deviation !== null) words.push(make("span", { class: "pm" }, ` ± ${row.deviation.toFixed(1)}`));
  if (row.worse) words.push(" ↑");
  return make("td", { class: [row.best && "best", row.worse && "worse"].filter(Boolean).join(" ") || null,
    title: `seed${row.seeds.length > 1 ? "s" : ""} ${row.seeds.join(", ")}; source ${row.source_error.toFixed(1)}` }, ...words);
}
function columnsOf(table) {
  const rowsOf = line => table.columns.map(column => line.rows[column.stream]).filter(Boolean).map(rowOf);
  const joined = (line, text) => rowsOf(line).map(text).filter(Boolean).join(" / ");
  const columns = [
    { title: "method", value: line => line.name, cell: line => {
      const row = rowsOf(line)[0];
      const [first, ...options] = line.name.split(" ");
      return make("th", { scope: "row" }, named(row, first), options.length ? make("span", { class: "options" }, ` ${options.join(" ")}`) : null);
    } },
    { title: "M", value: line => line.capacity, cell: line => make("td", {}, line.capacity === null ? "" : `${line.capacity}`) },
  ];
  for (const column of table.columns) {
    const row = line => line.rows[column.stream] && rowOf(line.rows[column.stream]);
    columns.push({ title: column.title, detail: column.detail, value: line => row(line)?.error ?? null, cell: line => cellOf(row(line)) });
    if (column.published) columns.push({ title: "published", value: line => row(line)?.published?.[0] ?? null,
      cell: line => { const figure = row(line)?.published; return make("td", { class: "muted", title: figure ? `from the ${figure[1]}` : null }, figure ? `${figure[0].toFixed(1)}${figure[1] === "paper" ? "" : "*"}` : ""); } });
  }
  columns.push(
    { title: "updates", value: line => rowsOf(line)[0]?.update_rate ?? null, cell: line => make("td", { title: "share of the calls that updated" }, joined(line, row => row.update_rate === undefined ? "" : `${Math.round(100 * row.update_rate)} %`)) },
    { title: "cost", value: line => rowsOf(line)[0]?.cost ?? null, cell: line => make("td", { title: "processor time in multiples of a plain forward" }, joined(line, row => row.cost ? `${row.cost.toFixed(1)} ×` : "")) });
  return columns;
}
function drawTables() {
  fill(at("tables"), ...data.tables.map((table, number_) => {
    const columns = columnsOf(table), sort = chosen.sort.get(table.setting);
    const lines = [...table.lines];
    if (sort) lines.sort((a, b) => {
      const [u, v] = [a, b].map(columns[sort.column].value);
      if (u === null || v === null) return (u === null) - (v === null);
      return sort.way * (typeof u === "string" ? u.localeCompare(v) : u - v);
    });
    const head = columns.map((column, i) => make("th", { scope: "col", "aria-sort": sort?.column === i ? (sort.way > 0 ? "ascending" : "descending") : null },
      make("button", { type: "button", onclick: () => {
        chosen.sort.set(table.setting, { column: i, way: sort?.column === i ? -sort.way : 1 });
        drawTables();
        at("tables").querySelectorAll("table")[number_].querySelectorAll("thead button")[i].focus();
      } }, column.title), column.detail ? make("small", {}, column.detail) : null));
    const star = table.lines.some(line => Object.values(line.rows).some(id => { const f = rowOf(id).published; return f && f[1] !== "paper"; }));
    return make("div", { class: "setting" }, make("h3", {}, table.setting),
      make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Errors, ${table.setting}` },
        make("table", {}, make("thead", {}, make("tr", {}, ...head)),
          make("tbody", {}, ...lines.map(line => make("tr", {}, ...columns.map(column => column.cell(line))))))),
      star ? make("p", { class: "note" }, "*: not in the paper, from its authors' benchmark.") : null);
  }));
}

// Error over the stream

const current = () => data.streams[chosen.stream] || data.streams[0];
function hiddenOf(stream) {
  if (!chosen.hidden.has(stream.title + stream.detail)) {
    // Too many lines say nothing: at first, the best variant of each method.
    const hidden = new Set();
    if (stream.rows.length > 8) {
      const best = {};
      for (const row of stream.rows) if (!(row.method in best) || (row.error ?? 101) < (best[row.method].error ?? 101)) best[row.method] = row;
      for (const row of stream.rows) if (best[row.method] !== row && !row.is_source) hidden.add(row.id);
    }
    chosen.hidden.set(stream.title + stream.detail, hidden);
  }
  return chosen.hidden.get(stream.title + stream.detail);
}
// A mean over neighbouring windows of the same domain.
function smooth(values, stream) {
  const domain = i => stream.ends ? stream.ends.findIndex(end => (i + .5) * stream.window <= end) : 0;
  const reach = Math.max(1, Math.round(values.length / 60));
  return values.map((_, i) => {
    let sum = 0, count = 0;
    for (let j = Math.max(0, i - reach); j <= Math.min(values.length - 1, i + reach); j++)
      if (domain(j) === domain(i)) { sum += values[j]; count++; }
    return sum / count;
  });
}
function drawTime() {
  const stream = current(), hidden = hiddenOf(stream);
  const source = stream.rows.find(row => row.is_source && row.windows.length);
  if (!source && chosen.view === "difference") chosen.view = "error";
  fill(at("view"), ...[["error", "error"], ["difference", "against source"]].map(([view, text]) =>
    make("button", { type: "button", class: "choice", "aria-pressed": chosen.view === view, disabled: view === "difference" && !source,
      onclick: () => { chosen.view = view; drawTime(); } }, text)));
  at("time-note").textContent = (chosen.view === "error"
    ? `Error in % over windows of ${number(stream.window)} images`
    : `Error less that of the source model in the same window of ${number(stream.window)} images: above 0 is worse than not adapting`)
    + `; thick: mean over neighbouring windows. ${stream.ends ? "Dashed lines: another domain begins." : "Domains are mixed."}`;
  const shown = stream.rows.filter(row => !hidden.has(row.id) && row.windows.length);
  const values = row => chosen.view === "error" ? row.windows : row.windows.slice(0, source.windows.length).map((error, i) => error - source.windows[i]);
  const lines = shown.map(row => ({ row, raw: values(row), thick: smooth(values(row), stream) }));
  const all = lines.flatMap(line => line.thick);
  const low = chosen.view === "error" ? 0 : Math.floor(Math.min(-5, ...all) / 5) * 5;
  const high = Math.ceil(Math.max(10, ...all) / 10) * 10;
  const node = at("time"), narrow = node.clientWidth < 640;
  const crowded = stream.ends && (node.clientWidth - 60) / stream.ends.length < 40;
  const box = frame(node, { height: narrow ? 320 : 400, left: 38, right: narrow ? 10 : 136, top: stream.ends ? (crowded ? 52 : 34) : 16, x: [0, stream.samples], y: [low, high], xLabel: "images seen", label:
    `Error over the stream of ${stream.title}. ` + shown.filter(row => row.error !== undefined).map(row => `${row.label}: ${row.error.toFixed(1)} % on average`).join("; ") });
  boundaries(stream, box, true);
  const place = i => box.x(Math.min(stream.samples, (i + .5) * stream.window));
  const clip = value => Math.max(low, Math.min(high, value));
  for (const { row, raw, thick } of lines) {
    const group = make("g", { "data-row": row.id, class: "line" });
    const look = { fill: "none", stroke: colour(row.method), "stroke-linejoin": "round" };
    group.append(make("path", { d: path(raw.map((v, i) => [place(i), box.y(clip(v))])), ...look, "stroke-width": 1, "stroke-opacity": lines.length > 5 ? .14 : .24 }),
      make("path", { d: path(thick.map((v, i) => [place(i), box.y(v)])), ...look, "stroke-width": row.is_source ? 2 : 2.6, "stroke-dasharray": dash(row) }));
    box.svg.append(group);
  }
  if (!narrow) endLabels(box, lines.map(({ row, thick }) => ({ row, y: box.y(thick[thick.length - 1]), x: place(thick.length - 1) })));
  fill(node, box.svg);
  const longest = Math.max(0, ...lines.map(line => line.raw.length));
  follow(node, box, Array.from({ length: longest }, (_, i) => place(i)), i => {
    const from = i * stream.window, to = Math.min(stream.samples, from + stream.window);
    const there = lines.filter(line => i < line.raw.length).sort((a, b) => a.raw[i] - b.raw[i]);
    return tipTable(`${domainAt(stream, (from + to) / 2)}, ${number(from)}–${number(to)}`, there.map(({ row, raw }) => [swatch(row), row.label,
      chosen.view === "error" ? percent(raw[i]) : `${raw[i] > 0 ? "+" : ""}${raw[i].toFixed(1)}`]));
  });
  fill(at("legend"), ...stream.rows.map(row => make("button", { type: "button", "data-row": row.id, "aria-pressed": !hidden.has(row.id), title: row.name, onclick: () => {
    hidden.has(row.id) ? hidden.delete(row.id) : hidden.add(row.id);
    drawTime();
    at("legend").querySelector(`[data-row="${row.id}"]`).focus();
  } }, swatch(row), row.label)));
}
function endLabels(box, ends) {
  ends.sort((a, b) => a.y - b.y);
  let last = -Infinity;
  for (const end of ends) { end.at = Math.max(end.y, last + 14); last = end.at; }
  const over = last - (box.height - box.bottom + 4);
  if (over > 0) for (let i = ends.length - 1, limit = box.height - box.bottom + 4; i >= 0; i--, limit -= 14) ends[i].at = Math.min(ends[i].at, limit);
  for (const { row, at: y, x } of ends)
    box.svg.append(make("text", { class: "label", x: Math.max(x, 0) + 9, y: y + 4, style: `fill: ${colour(row.method)}` }, row.label.length > 18 ? `${row.label.slice(0, 17)}…` : row.label));
}

function drawTiles() {
  const done = current().rows.filter(row => row.error !== undefined);
  const source = done.find(row => row.is_source), best = done.find(row => row.best);
  const worse = done.filter(row => row.worse);
  const tile = (row, text, mark) => make("div", { class: "tile", style: `border-left-color: ${mark || colour(row.method)}` }, make("span", {}, text), make("b", {}, row.error.toFixed(1), make("span", {}, " %")), make("span", {}, row.label));
  const tiles = [];
  if (source) tiles.push(tile(source, "not adapting"));
  if (best && best !== source) tiles.push(tile(best, "best"));
  const worst = worse.sort((a, b) => b.error - a.error)[0];
  if (worst) tiles.push(tile(worst, worse.length > 1 ? `worst of ${worse.length} worse than not adapting` : "worse than not adapting", "var(--worse)"));
  fill(at("tiles"), ...tiles);
}

// Error by domain

function drawDomains() {
  const stream = current();
  const rows = stream.rows.filter(row => row.errors), source = rows.find(row => row.is_source);
  at("domains-note").textContent = source ? "In %, as the domains follow each other. Blue: better than the source model on this domain; red: worse." : "In %, as the domains follow each other.";
  const head = make("tr", {}, make("th", { scope: "col" }, "method"), ...stream.short.map((name, i) => make("th", { scope: "col", title: stream.domains[i] }, name)), make("th", { scope: "col" }, "mean"));
  const cell = (row, error, ours) => {
    if (error === undefined) return make("td");
    const d = ours === undefined ? 0 : error - ours;
    const strength = Math.min(1, Math.abs(d) / 25) * .5;
    return make("td", { style: Math.abs(d) < .05 ? null : `background: rgb(var(--${d < 0 ? "better" : "worse"}-rgb) / ${strength.toFixed(2)})`,
      title: `${row.label}: ${error.toFixed(1)} %${source && row !== source ? `, ${d > 0 ? "+" : ""}${d.toFixed(1)} to source` : ""}` }, error.toFixed(1));
  };
  fill(at("domains"), make("table", { class: "heat" }, make("thead", {}, head), make("tbody", {}, ...rows.map(row => make("tr", {},
    make("th", { scope: "row" }, named(row, row.method), make("span", { class: "options" }, row.label.slice(row.method.length))), ...stream.domains.map(domain => cell(row, row.errors[domain], source?.errors[domain])), cell(row, row.error, source?.error))))));
}

// Buffer size, cost

function hoverPoints(node, box, points) {
  follow(node, box, points.map(point => point.x), i => points[i].tip);
}
function drawSize() {
  const stream = current(), rows = stream.rows.filter(row => row.error !== undefined);
  const sized = rows.filter(row => row.capacity !== null);
  const groups = new Map();
  for (const row of sized) {
    // An update after as many samples as the memory holds is the same rule at every size.
    const { update_every, ...rest } = row.options;
    const name = row.method + JSON.stringify(rest);
    groups.set(name, [...(groups.get(name) || []), row]);
  }
  const lines = [...groups.values()].map(group => group.sort((a, b) => a.capacity - b.capacity));
  at("size-section").hidden = !lines.some(line => line.length > 1);
  if (at("size-section").hidden) return;
  const sizes = [...new Set(sized.map(row => row.capacity))].sort((a, b) => a - b);
  const source = rows.find(row => row.is_source), node = at("size");
  const errors = [...sized, ...(source ? [source] : [])].flatMap(row => [row.error + (row.deviation || 0), row.error - (row.deviation || 0)]);
  const [low, high] = [Math.floor((Math.min(...errors) - 1) / 5) * 5, Math.ceil((Math.max(...errors) + 1) / 5) * 5];
  const box = frame(node, { height: 290, right: 20, top: 20, x: [sizes[0] / 1.25, sizes[sizes.length - 1] * 1.25], y: [Math.max(0, low), high], log: true, xTicks: sizes, xText: String, xLabel: "M", yLabel: "error in %",
    label: `Error against buffer size. ${sized.map(row => `${row.label}: ${row.error.toFixed(1)} %`).join("; ")}` });
  if (source) {
    const y = box.y(source.error);
    box.svg.append(make("line", { x1: box.left, x2: box.width - box.right, y1: y, y2: y, stroke: colour("source"), "stroke-width": 2 }),
      make("text", { class: "label", x: box.width - box.right, y: y - 5, "text-anchor": "end", style: `fill: ${colour("source")}` }, `source ${source.error.toFixed(1)}`));
  }
  const points = [];
  lines.forEach(line => {
    box.svg.append(make("path", { d: path(line.map(row => [box.x(row.capacity), box.y(row.error)])), fill: "none", stroke: colour(line[0].method), "stroke-width": 2.4 }));
    for (const row of line) {
      const x = box.x(row.capacity);
      if (row.deviation) box.svg.append(make("line", { x1: x, x2: x, y1: box.y(row.error - row.deviation), y2: box.y(row.error + row.deviation), stroke: colour(row.method), "stroke-width": 1.5 }));
      box.svg.append(shape(row.method, x, box.y(row.error)));
    }
    const last = line[line.length - 1];
    box.svg.append(make("text", { class: "label", x: box.x(last.capacity), y: box.y(last.error) - 10, "text-anchor": "end", style: `fill: ${colour(last.method)}` }, last.method));
  });
  for (const size of sizes) points.push({ x: box.x(size), tip: tipTable(`M = ${size}`, sized.filter(row => row.capacity === size).sort((a, b) => a.error - b.error).map(row => [swatch(row), row.name, percent(row.error)])) });
  fill(node, box.svg);
  hoverPoints(node, box, points);
}
function drawCost() {
  const stream = current(), rows = stream.rows.filter(row => row.error !== undefined && row.cost);
  at("cost-section").hidden = rows.length < 2;
  if (rows.length < 2) return;
  const node = at("cost"), most = Math.max(...rows.map(row => row.cost)), errors = rows.map(row => row.error);
  const [low, high] = [Math.max(0, Math.floor((Math.min(...errors) - 2) / 5) * 5), Math.ceil((Math.max(...errors) + 2) / 5) * 5];
  const box = frame(node, { height: 290, right: 24, top: 20, x: [0, most * 1.12], y: [low, high], xText: value => `${value} ×`, xLabel: "processor time of a plain forward", yLabel: "error in %", bottom: 38,
    label: `Cost against error. ${rows.map(row => `${row.label}: ${row.cost.toFixed(1)} times a plain forward, ${row.error.toFixed(1)} %`).join("; ")}` });
  const taken = [];
  for (const row of [...rows].sort((a, b) => a.error - b.error)) {
    const x = box.x(row.cost), y = box.y(row.error);
    box.svg.append(shape(row.method, x, y, 5.5));
    const end = x > box.width * .68, width = row.label.length * 6.4;
    const span = end ? [x - 9 - width, x - 9] : [x + 9, x + 9 + width];
    if (!taken.some(([a, b, at_]) => Math.abs(at_ - y) < 12 && a < span[1] && span[0] < b)) {
      taken.push([...span, y]);
      box.svg.append(make("text", { class: "label", x: end ? x - 9 : x + 9, y: y + 4, "text-anchor": end ? "end" : "start", style: `fill: ${colour(row.method)}` }, row.label));
    }
  }
  fill(node, box.svg);
  const ordered = [...rows].sort((a, b) => a.cost - b.cost);
  hoverPoints(node, box, ordered.map(row => ({ x: box.x(row.cost), tip: tipTable(row.label, [[swatch(row), "error", percent(row.error)], [null, "cost", `${row.cost.toFixed(2)} ×`], [null, "memory", `${number(Math.round(row.memory))} MiB`]]) })));
}

// Inside the buffer

function small(title, note, stream, { y, label, lines, band, at: places, unit = "" }) {
  const node = make("div", { class: "chart" });
  const figure = make("figure", {}, make("figcaption", {}, make("b", {}, title), ` ${note}`), node);
  const draw = () => {
    const box = frame(node, { height: 170, left: 40, top: 10, x: [0, stream.samples], y, label, bottom: 24 });
    boundaries(stream, box, false);
    if (band) box.svg.append(make("path", { d: bandPath(places.map((p, i) => [box.x(p), box.y(band.high[i])]), places.map((p, i) => [box.x(p), box.y(band.low[i])])), fill: band.colour, "fill-opacity": .22 }));
    for (const line of lines) box.svg.append(make("path", { d: path(places.map((p, i) => [box.x(p), box.y(line.values[i])])), fill: "none", stroke: line.colour, "stroke-width": 2, "stroke-dasharray": line.dash }));
    fill(node, box.svg);
    follow(node, box, places.map(box.x), i => tipTable(`${domainAt(stream, places[i])}, ${number(places[i])} images`, lines.map(line => [null, line.name, `${number(+line.values[i].toFixed(1))}${unit}`])));
  };
  return { figure, draw };
}
// Counts came as grey levels; they are drawn in the colours of the page.
function heat(title, note, uri, stream, places, most, rgb) {
  const canvas = make("canvas", { role: "img", tabindex: 0, "aria-label": `${title} ${note}` });
  canvas.style.height = "150px";
  const picture = new Image();
  picture.onload = () => {
    const { width, height } = picture;
    canvas.width = width; canvas.height = height;
    const pen = canvas.getContext("2d", { willReadFrequently: true });
    pen.drawImage(picture, 0, 0);
    const pixels = pen.getImageData(0, 0, width, height), counts = new Uint8Array(width * height);
    const [r, g, b] = rgb();
    for (let i = 0; i < counts.length; i++) {
      counts[i] = pixels.data[4 * i];
      const strength = counts[i] ? .2 + .8 * Math.min(1, counts[i] / most) : 0;
      pixels.data.set([r, g, b, Math.round(255 * strength)], 4 * i);
    }
    pen.clearRect(0, 0, width, height);
    pen.putImageData(pixels, 0, 0);
    canvas.onpointermove = event => {
      const rect = canvas.getBoundingClientRect();
      const x = Math.max(0, Math.min(width - 1, Math.floor((event.clientX - rect.left) / rect.width * width)));
      const y = Math.max(0, Math.min(height - 1, Math.floor((event.clientY - rect.top) / rect.height * height)));
      showTip(tipTable(`class ${y}`, [[null, domainAt(stream, places[x]), ""], [null, `at ${number(places[x])} images`, `${counts[y * width + x]}`]]), event.pageX, event.pageY);
    };
    canvas.onpointerleave = hideTip;
  };
  picture.src = uri;
  return make("figure", {}, make("figcaption", {}, make("b", {}, title), ` ${note}`), canvas);
}
function sheet(title, note, { sheet: uri, labels }) {
  const classes = new Set(labels).size;
  const image = make("img", { class: "sheet", src: uri, alt: `${title}: ${labels.length} images of ${classes} classes` });
  image.onpointermove = event => {
    const rect = image.getBoundingClientRect();
    const i = 8 * Math.floor((event.clientY - rect.top) / rect.height * Math.ceil(labels.length / 8)) + Math.floor((event.clientX - rect.left) / rect.width * 8);
    if (labels[i] === undefined) hideTip(); else showTip([make("b", {}, `class ${labels[i]}`)], event.pageX, event.pageY);
  };
  image.onpointerleave = hideTip;
  return make("figure", {}, make("figcaption", {}, make("b", {}, title), ` ${note}`), image);
}
const rgbOf = text => { const probe = make("span", { style: `color: ${text}` }); document.body.append(probe); const found = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number); probe.remove(); return found; };

function drawInside() {
  const stream = current();
  const held = Object.entries(data.insides).filter(([, inside]) => stream.rows.some(row => row.id === inside.row));
  at("inside-section").hidden = !held.length;
  if (!held.length) return;
  const names = held.map(([name]) => name);
  if (!names.includes(chosen.inside)) {
    const rowIn = ([, inside]) => stream.rows.find(row => row.id === inside.row);
    const order = entry => (rowIn(entry).method === "dab" ? 0 : 1000) + rowIn(entry).error;
    chosen.inside = [...held].sort((a, b) => order(a) - order(b))[0][0];
  }
  const inside = data.insides[chosen.inside], row = stream.rows.find(found => found.id === inside.row);
  fill(at("inside-rows"), ...held.map(([name, one]) => { const r = stream.rows.find(found => found.id === one.row); return make("button", { type: "button", class: "choice", "aria-pressed": name === chosen.inside, onclick: () => { chosen.inside = name; drawInside(); } }, r.label); }));
  const tint = colour(row.method), grey = "var(--muted)";
  const charts = [], parts = [];
  if (inside.shots) {
    if (chosen.shot === null || chosen.shot >= inside.shots.length) chosen.shot = Math.min(2, inside.shots.length - 1);
    const shot = inside.shots[chosen.shot];
    const kinds = labels => new Set(labels).size;
    const mean = list => list.reduce((a, b) => a + b, 0) / Math.max(1, list.length);
    const full = inside.look_at.map((_, i) => i).filter(i => inside.buffer_balance[i] > 0);
    at("inside-lead").textContent = `On average a batch of the stream was as varied as ${mean(inside.batch_balance).toFixed(1)} equally frequent classes, the buffer as ${mean(full.map(i => inside.buffer_balance[i])).toFixed(1)}, of ${inside.classes}: what is learned from is drawn from the buffer, however sorted the stream is.`;
    parts.push(make("div", { class: "segments wrap", role: "group", "aria-label": "Moment" }, ...inside.shots.map((one, i) => make("button", { type: "button", class: "choice", "aria-pressed": i === chosen.shot, onclick: () => { chosen.shot = i; drawInside(); } }, `${domainAt(stream, one.at)} · ${short(one.at)}`))),
      make("div", { class: "two" },
        sheet("What the stream showed", `after ${number(shot.at)} images: ${shot.batch.labels.length} of ${kinds(shot.batch.labels)} classes`, shot.batch),
        sheet("What the buffer held", `then: ${shot.buffer.labels.length} of ${row.capacity} images, of ${kinds(shot.buffer.labels)} predicted classes`, shot.buffer)));
    const ages = inside.ages.map(a => a.map(v => Math.max(0, v)));
    parts.push(make("div", { class: "two" },
      heat("Classes in the stream's batches", "(a row for each)", inside.batch_classes, stream, inside.look_at, 24, () => rgbOf("var(--muted)")),
      heat("Classes in the buffer", "(as predicted, at the same moments)", inside.buffer_classes, stream, inside.look_at, Math.max(2, 2 * row.capacity / inside.classes), () => rgbOf(tint))));
    charts.push(small("Variety", "in equally frequent classes: buffer, and dotted the stream's batch", stream, { y: [0, Math.ceil(Math.max(...inside.buffer_balance, ...inside.batch_balance) * 1.08)], at: inside.look_at, label: "Variety of the buffer's classes and of the stream's batches over time",
      lines: [{ name: "buffer", values: inside.buffer_balance, colour: tint }, { name: "stream's batch", values: inside.batch_balance, colour: grey, dash: "2 3" }] }),
      small("Age", "in images of the stream: median, quartiles, oldest dotted", stream, { y: [0, Math.max(1, ...ages.map(a => a[4])) * 1.05], at: inside.look_at, label: "Age of the buffer's items over time", band: { low: ages.map(a => a[1]), high: ages.map(a => a[3]), colour: tint },
        lines: [{ name: "median", values: ages.map(a => a[2]), colour: tint }, { name: "oldest", values: ages.map(a => a[4]), colour: grey, dash: "2 3" }] }));
  } else at("inside-lead").textContent = "This run is from before classes, ages and images were recorded; run it again to see them.";
  charts.push(small("Fill", `in images, of ${row.capacity}`, stream, { y: [0, row.capacity * 1.05], at: inside.at, label: "Fill of the buffer over time", lines: [{ name: "fill", values: inside.fill, colour: tint }] }),
    small("Rates", "in %: images admitted, and dotted calls that updated", stream, { y: [0, 100], at: inside.at, unit: " %", label: "Admission and update rate over time",
      lines: [{ name: "admitted", values: inside.admitted.map(v => 100 * v), colour: tint }, { name: "updated", values: inside.updated.map(v => 100 * v), colour: grey, dash: "2 3" }] }));
  parts.push(make("div", { class: "two" }, ...charts.map(chart => chart.figure)));
  if (data.insides_left_out) parts.push(make("p", { class: "note" }, `The buffers of ${data.insides_left_out} more rows are left out to keep the page small: a report of a folder with fewer runs shows them.`));
  fill(at("inside"), ...parts);
  for (const chart of charts) chart.draw();
}

// Runs

function copy(text, button) {
  const said = () => { button.textContent = "copied"; setTimeout(() => { button.textContent = "copy"; }, 1500); };
  const byHand = () => { const area = make("textarea"); area.value = text; document.body.append(area); area.select(); document.execCommand("copy"); area.remove(); button.focus(); said(); };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(said, byHand); else byHand();
}
function runBody(run) {
  const button = make("button", { type: "button", onclick: () => copy(run.command, button) }, "copy");
  return make("div", {},
    make("div", { class: "command" }, make("pre", {}, run.command), button),
    ...run.notes.map(note => make("p", { class: "note" }, `Besides: ${note}.`)),
    make("pre", { tabindex: 0, "aria-label": "Identity card" }, JSON.stringify(run.card, null, 1)));
}
function runTitle(run) {
  const changed = /^dab run (.*?)(?= --|$)/.exec(run.command)[1];
  return `${changed}, ${run.card.data.name}, ${run.card.setting}, seed ${run.card.seed}`;
}
function drawRuns() {
  const words = at("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = Object.entries(data.runs).filter(([name, run]) => { const text = `${name} ${runTitle(run)} ${run.command}`.toLowerCase(); return words.every(word => text.includes(word)); });
  fill(at("runs"), ...found.map(([name, run]) => {
    const details = make("details", { open: chosen.open.has(name) },
      make("summary", {}, make("span", {}, runTitle(run)),
        make("span", { class: "muted" }, run.error === undefined ? "under way" : `${percent(run.error)} · ${number(Math.round(run.seconds))} s · ${number(run.updates)} updates`),
        make("code", { class: "muted" }, name)));
    // 500 cards are only written where one looks.
    const open = () => { if (details.open && details.children.length === 1) details.append(runBody(run)); details.open ? chosen.open.add(name) : chosen.open.delete(name); };
    details.addEventListener("toggle", open);
    if (details.open) open();
    return details;
  }), found.length ? null : make("p", { class: "muted" }, "No run has all of these words."));
}
function drawUnderway() {
  const running = Object.entries(data.runs).filter(([, run]) => run.error === undefined);
  at("underway").hidden = !running.length;
  fill(at("underway-runs"), ...running.map(([, run]) => {
    const silent = data.now ? Math.max(0, data.now - run.time) : 0;
    return make("div", { class: "running" }, make("progress", { max: run.samples, value: run.seen, "aria-label": runTitle(run) }),
      make("span", {}, runTitle(run)), make("span", { class: "muted" }, `${(100 * run.seen / run.samples).toFixed(0)} %${run.error_so_far === null ? "" : `, error so far ${percent(run.error_so_far)}`}${silent > 60 ? `, silent for ${Math.round(silent / 60)} min: stopped?` : ""}`));
  }));
}

// All

function drawStreams() {
  fill(at("streams"), make("span", { class: "muted" }, data.streams.length > 1 ? "Stream:" : "Stream: "), ...data.streams.map((stream, i) => make("button", { type: "button", class: "choice", title: stream.detail, "aria-pressed": i === chosen.stream, onclick: () => { chosen.stream = i; chosen.shot = null; drawStream(); at("streams").querySelectorAll("button")[i].focus({ preventScroll: true }); } }, stream.title)),
    make("span", { class: "muted" }, current().detail));
}
function drawStream() { drawStreams(); drawTiles(); drawTime(); drawDomains(); drawSize(); drawCost(); drawInside(); }
function drawAll() {
  const style = at("palette") || document.head.appendChild(make("style", { id: "palette" }));
  const set = i => Object.values(data.palette).map((pair, n) => `--m-${n}: ${pair[i ? "dark" : "light"]};`).join("");
  style.textContent = `:root { ${set(0)} } :root[data-theme="dark"] { ${set(1)} }`;
  const runs = Object.values(data.runs), done = runs.filter(run => run.error !== undefined).length;
  const count = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`;
  at("summary").textContent = `${count(done, "finished run")}${done < runs.length ? `, ${runs.length - done} under way` : ""}, ${count(Object.keys(data.palette).length, "method")}, ${count(data.streams.length, "stream")}`;
  if (chosen.stream >= data.streams.length) chosen.stream = 0;
  drawUnderway(); drawTables(); drawStream(); drawRuns();
}

const system = matchMedia("(prefers-color-scheme: dark)");
const setTheme = dark => { document.documentElement.dataset.theme = dark ? "dark" : "light"; if (at("palette")) drawInside(); };
system.addEventListener("change", event => setTheme(event.matches));
at("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark"));
at("filter").addEventListener("input", drawRuns);
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; hideTip(); drawStream(); } });
addEventListener("keydown", event => { if (event.key === "Escape") hideTip(); });
setTheme(system.matches);
drawAll();

// Where a server is asked, it answers with the data of now; what did not change is not sent again.
const every = +document.documentElement.dataset.refresh || 0;
if (every) {
  let last = null;
  const ask = async () => {
    try {
      const answer = await fetch("data.json", { cache: "no-cache" });
      const text = await answer.text();
      if (answer.ok && text !== last) { last = text; data = JSON.parse(text); const y = scrollY; drawAll(); scrollTo(0, y); }
      at("live").textContent = answer.ok ? "· live" : `· ${JSON.parse(text).error}`;
    } catch { at("live").textContent = "· the server does not answer"; }
    setTimeout(ask, every * 1000);
  };
  setTimeout(ask, every * 1000);
}
