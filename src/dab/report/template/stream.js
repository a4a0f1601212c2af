// Error over the stream

const current = () => data.streams.find(one => one.id === chosen.stream) || data.streams[0];
function hiddenOf(stream) {
  if (!chosen.hidden.has(stream.id)) {
    // Too many lines are hard to read: at first, only the best variant of each method.
    const hidden = new Set();
    if (stream.rows.length > 8)
      for (const row of stream.rows)
        if (!row.is_source && row.scores && !row.scores.leading) hidden.add(row.id);
    chosen.hidden.set(stream.id, hidden);
  }
  return chosen.hidden.get(stream.id);
}
const curveOf = row => (chosen.view === "error" ? row.curve : row.difference);

function drawTime() {
  const stream = current(),
    hidden = hiddenOf(stream);
  const comparable = stream.rows.some(row => row.difference?.raw.length);
  if (!comparable) chosen.view = "error";
  for (const id of ["view", "time", "legend"]) at(id).hidden = stream.in_pieces;
  drawView(comparable);
  drawTimeNote(stream);
  drawGuard();
  if (stream.in_pieces) return;
  const lines = stream.rows
    .filter(row => !hidden.has(row.id) && curveOf(row)?.raw.length)
    .map(row => ({ row, ...curveOf(row) }));
  const box = timeFrame(stream, lines);
  const place = i => box.x(Math.min(stream.samples, (i + 0.5) * stream.window));
  boundaries(stream, box, true);
  drawCurves(box, lines, place);
  fill(at("time"), box.svg);
  followCurves(stream, box, lines, place);
  drawLegend(stream, hidden);
}
function drawView(comparable) {
  fill(
    at("view"),
    ...[
      ["error", "error"],
      ["difference", "against source"],
    ].map(([view, text]) =>
      make(
        "button",
        {
          type: "button",
          class: "choice",
          "aria-pressed": chosen.view === view,
          disabled: view === "difference" && !comparable,
          onclick: () => {
            chosen.view = view;
            drawTime();
          },
        },
        text,
      ),
    ),
  );
}
function drawTimeNote(stream) {
  if (stream.in_pieces) {
    at("time-note").textContent =
      "The stream was split over several adapters, and each piece has its own time: numbers are for all pieces together.";
    return;
  }
  const images = `${number(stream.window)} images`;
  at("time-note").textContent =
    (chosen.view === "error"
      ? `Error in % per window of ${images}`
      : `Error minus that of the source model in the same window of ${images}: above 0 is worse than not adapting`) +
    `; thick lines: mean over neighboring windows. ${stream.ends ? "Dotted: a new domain begins." : "Domains are mixed."}`;
}
function timeFrame(stream, lines) {
  const all = lines.flatMap(line => line.smooth);
  const node = at("time"),
    narrow = node.clientWidth < 640;
  const crowded = stream.ends && (node.clientWidth - 60) / stream.ends.length < 40;
  const low = chosen.view === "error" ? 0 : Math.floor(Math.min(-5, ...all) / 5) * 5;
  return frame(node, {
    height: narrow ? 320 : 400,
    left: 38,
    right: narrow ? 10 : 136,
    top: stream.ends ? (crowded ? 52 : 34) : 16,
    x: [0, stream.samples],
    y: [low, Math.ceil(Math.max(10, ...all) / 10) * 10],
    xLabel: "images seen",
    label:
      `Error over the stream of ${stream.title}. ` +
      lines
        .filter(({ row }) => row.scores)
        .map(({ row }) => `${row.label.short}: ${percent(row.scores.error)} on average`)
        .join("; "),
  });
}
function drawCurves(box, lines, place) {
  const inside = value => Math.max(box.top, Math.min(box.height - box.bottom, box.y(value)));
  for (const { row, raw, smooth } of lines) {
    const look = { fill: "none", stroke: color(row.method), "stroke-linejoin": "round" };
    box.svg.append(
      make(
        "g",
        { "data-row": row.id, class: "line" },
        make("path", {
          d: path(raw.map((value, i) => [place(i), inside(value)])),
          ...look,
          "stroke-width": 1,
          "stroke-opacity": lines.length > 5 ? 0.14 : 0.24,
        }),
        make("path", {
          d: path(smooth.map((value, i) => [place(i), box.y(value)])),
          ...look,
          "stroke-width": row.is_source ? 2 : 2.6,
          "stroke-dasharray": dash(row),
        }),
      ),
    );
  }
  if (box.right > 100)
    endLabels(
      box,
      lines.map(({ row, smooth }) => ({
        row,
        y: box.y(smooth[smooth.length - 1]),
        x: place(smooth.length - 1),
      })),
    );
}
function followCurves(stream, box, lines, place) {
  const longest = Math.max(0, ...lines.map(line => line.raw.length));
  const text = chosen.view === "error" ? percent : signed;
  follow(
    at("time"),
    box,
    Array.from({ length: longest }, (_, i) => place(i)),
    i => {
      const from = i * stream.window,
        to = Math.min(stream.samples, from + stream.window);
      const there = lines.filter(line => i < line.raw.length).sort((a, b) => a.raw[i] - b.raw[i]);
      return tipTable(
        `${domainAt(stream, (from + to) / 2)}, ${number(from)}–${number(to)}`,
        there.map(({ row, raw }) => [swatch(row), row.label.short, text(raw[i])]),
      );
    },
  );
}
function drawLegend(stream, hidden) {
  fill(
    at("legend"),
    ...stream.rows.map(row =>
      make(
        "button",
        {
          type: "button",
          "data-row": row.id,
          "data-key": row.id,
          "aria-pressed": !hidden.has(row.id),
          title: `${row.label.title} ${row.label.options}`.trim(),
          onclick: () => {
            hidden.has(row.id) ? hidden.delete(row.id) : hidden.add(row.id);
            drawTime();
          },
        },
        swatch(row),
        row.label.short,
      ),
    ),
  );
}
function endLabels(box, ends) {
  ends.sort((a, b) => a.y - b.y);
  let last = -Infinity;
  for (const end of ends) {
    end.at = Math.max(end.y, last + 14);
    last = end.at;
  }
  // Not below the axis, where the ticks are labeled.
  for (let i = ends.length - 1, limit = box.height - box.bottom - 6; i >= 0; i--, limit -= 14)
    ends[i].at = Math.min(ends[i].at, limit);
  for (const { row, at: y, x } of ends)
    box.svg.append(
      make(
        "text",
        { class: "label", x: Math.max(x, 0) + 9, y: y + 4, style: `fill: ${color(row.method)}` },
        row.label.short.length > 18 ? `${row.label.short.slice(0, 17)}…` : row.label.short,
      ),
    );
}

function drawTiles() {
  fill(
    at("tiles"),
    ...current().highlights.map(({ row: id, text, worse }) => {
      const row = rowOf(id);
      return make(
        "div",
        {
          class: "tile",
          style: `border-left-color: ${worse ? "var(--worse)" : color(row.method)}`,
        },
        make("span", {}, text),
        make("b", {}, fixed(row.scores.error), make("span", {}, " %")),
        make("span", {}, row.label.short),
      );
    }),
  );
}
