// Error over the stream

const current = () => data.streams.find(one => one.id === chosen.stream) || data.streams[0];
function hiddenOf(stream) {
  if (!chosen.hidden.has(stream.id)) {
    // Too many lines say nothing: at first, the best variant of each method.
    const hidden = new Set();
    if (stream.rows.length > 8) {
      const best = {};
      for (const row of stream.rows)
        if (!(row.method in best) || (row.error ?? 101) < (best[row.method].error ?? 101))
          best[row.method] = row;
      for (const row of stream.rows)
        if (best[row.method] !== row && !row.is_source) hidden.add(row.id);
    }
    chosen.hidden.set(stream.id, hidden);
  }
  return chosen.hidden.get(stream.id);
}
// A mean over neighboring windows of the same domain.
function smooth(values, stream) {
  const domain = i =>
    stream.ends ? stream.ends.findIndex(end => (i + 0.5) * stream.window <= end) : 0;
  const reach = Math.max(1, Math.round(values.length / 60));
  return values.map((_, i) => {
    let sum = 0,
      count = 0;
    for (let j = Math.max(0, i - reach); j <= Math.min(values.length - 1, i + reach); j++)
      if (domain(j) === domain(i)) {
        sum += values[j];
        count++;
      }
    return sum / count;
  });
}
function drawTime() {
  const stream = current(),
    hidden = hiddenOf(stream);
  const source = stream.rows.find(row => row.is_source && row.windows.length);
  if (!source && chosen.view === "difference") chosen.view = "error";
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
          disabled: view === "difference" && !source,
          onclick: () => {
            chosen.view = view;
            drawTime();
          },
        },
        text,
      ),
    ),
  );
  const timeless = stream.in_pieces;
  for (const id of ["view", "time", "legend"]) at(id).hidden = timeless;
  if (timeless) {
    at("time-note").textContent =
      "The stream was dealt out to several adapters, and each piece has a time of its own: figures are those of all pieces together.";
    return;
  }
  at("time-note").textContent =
    (chosen.view === "error"
      ? `Error in % over windows of ${number(stream.window)} images`
      : `Error less that of the source model in the same window of ${number(stream.window)} images: above 0 is worse than not adapting`) +
    `; thick: mean over neighboring windows. ${stream.ends ? "Dotted lines: another domain begins." : "Domains are mixed."}`;
  const shown = stream.rows.filter(row => !hidden.has(row.id) && row.windows.length);
  const values = row =>
    chosen.view === "error"
      ? row.windows
      : row.windows.slice(0, source.windows.length).map((error, i) => error - source.windows[i]);
  const lines = shown.map(row => ({ row, raw: values(row), thick: smooth(values(row), stream) }));
  const all = lines.flatMap(line => line.thick);
  const low = chosen.view === "error" ? 0 : Math.floor(Math.min(-5, ...all) / 5) * 5;
  const high = Math.ceil(Math.max(10, ...all) / 10) * 10;
  const node = at("time"),
    narrow = node.clientWidth < 640;
  const crowded = stream.ends && (node.clientWidth - 60) / stream.ends.length < 40;
  const box = frame(node, {
    height: narrow ? 320 : 400,
    left: 38,
    right: narrow ? 10 : 136,
    top: stream.ends ? (crowded ? 52 : 34) : 16,
    x: [0, stream.samples],
    y: [low, high],
    xLabel: "images seen",
    label:
      `Error over the stream of ${stream.title}. ` +
      shown
        .filter(row => row.error !== undefined)
        .map(row => `${row.label}: ${row.error.toFixed(1)} % on average`)
        .join("; "),
  });
  boundaries(stream, box, true);
  const place = i => box.x(Math.min(stream.samples, (i + 0.5) * stream.window));
  const clip = value => Math.max(low, Math.min(high, value));
  for (const { row, raw, thick } of lines) {
    const group = make("g", { "data-row": row.id, class: "line" });
    const look = { fill: "none", stroke: color(row.method), "stroke-linejoin": "round" };
    group.append(
      make("path", {
        d: path(raw.map((v, i) => [place(i), box.y(clip(v))])),
        ...look,
        "stroke-width": 1,
        "stroke-opacity": lines.length > 5 ? 0.14 : 0.24,
      }),
      make("path", {
        d: path(thick.map((v, i) => [place(i), box.y(v)])),
        ...look,
        "stroke-width": row.is_source ? 2 : 2.6,
        "stroke-dasharray": dash(row),
      }),
    );
    box.svg.append(group);
  }
  if (!narrow)
    endLabels(
      box,
      lines.map(({ row, thick }) => ({
        row,
        y: box.y(thick[thick.length - 1]),
        x: place(thick.length - 1),
      })),
    );
  fill(node, box.svg);
  const longest = Math.max(0, ...lines.map(line => line.raw.length));
  follow(
    node,
    box,
    Array.from({ length: longest }, (_, i) => place(i)),
    i => {
      const from = i * stream.window,
        to = Math.min(stream.samples, from + stream.window);
      const there = lines.filter(line => i < line.raw.length).sort((a, b) => a.raw[i] - b.raw[i]);
      return tipTable(
        `${domainAt(stream, (from + to) / 2)}, ${number(from)}–${number(to)}`,
        there.map(({ row, raw }) => [
          swatch(row),
          row.label,
          chosen.view === "error"
            ? percent(raw[i])
            : `${raw[i] > 0 ? "+" : ""}${raw[i].toFixed(1)}`,
        ]),
      );
    },
  );
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
          title: row.name,
          onclick: () => {
            hidden.has(row.id) ? hidden.delete(row.id) : hidden.add(row.id);
            drawTime();
          },
        },
        swatch(row),
        row.label,
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
  // Not below the axis, where the ticks are named.
  for (let i = ends.length - 1, limit = box.height - box.bottom - 6; i >= 0; i--, limit -= 14)
    ends[i].at = Math.min(ends[i].at, limit);
  for (const { row, at: y, x } of ends)
    box.svg.append(
      make(
        "text",
        { class: "label", x: Math.max(x, 0) + 9, y: y + 4, style: `fill: ${color(row.method)}` },
        row.label.length > 18 ? `${row.label.slice(0, 17)}…` : row.label,
      ),
    );
}

function drawTiles() {
  const done = current().rows.filter(row => row.error !== undefined);
  const source = done.find(row => row.is_source),
    best = done.find(row => row.best);
  const worse = done.filter(row => row.worse);
  const tile = (row, text, mark) =>
    make(
      "div",
      { class: "tile", style: `border-left-color: ${mark || color(row.method)}` },
      make("span", {}, text),
      make("b", {}, row.error.toFixed(1), make("span", {}, " %")),
      make("span", {}, row.label),
    );
  const tiles = [];
  if (source) tiles.push(tile(source, "not adapting"));
  if (best && best !== source) tiles.push(tile(best, "best"));
  const worst = worse.sort((a, b) => b.error - a.error)[0];
  if (worst)
    tiles.push(
      tile(
        worst,
        worse.length > 1
          ? `worst of ${worse.length} worse than not adapting`
          : "worse than not adapting",
        "var(--worse)",
      ),
    );
  fill(at("tiles"), ...tiles);
}
