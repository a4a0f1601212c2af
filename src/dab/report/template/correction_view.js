// The output correction over time

function drawCorrection() {
  const stream = current(),
    panel = choosePanel(data.corrections, "correction", drawCorrection);
  if (!panel) return;
  const { spans, shares } = panel.view,
    row = rowOf(panel.row);
  chosen.span = Math.min(chosen.span, spans.length - 1);
  const span = spans[chosen.span];
  at("correction-lead").textContent =
    `Of these ${span.labels.length} images, ${percent(span.error_before)} are predicted wrong ` +
    `without the correction, and ${percent(span.error_after)} with it.`;
  const charts = [spanChart(row, span), ...(shares ? [shareChart(stream, row, shares)] : [])];
  fill(
    at("correction"),
    make(
      "div",
      { class: "segments wrap", role: "group", "aria-label": "Part of the stream" },
      ...spans.map(({ start }, i) =>
        choice(`${domainAt(stream, start + 1)} · ${short(start)}`, i === chosen.span, () => {
          chosen.span = i;
          drawCorrection();
        }),
      ),
    ),
    ...charts.map(chart => chart.figure),
    leftOut(data.corrections_left_out, "corrections"),
  );
  for (const chart of charts) chart.draw();
}
// [first, end, label] of each run of equal labels.
function runsOf(labels) {
  const runs = [];
  labels.forEach((label, i) => {
    if (i && label === labels[i - 1]) runs.at(-1)[1] = i + 1;
    else runs.push([i, i + 1, label]);
  });
  return runs;
}
const key = (look, text) =>
  make(
    "span",
    { class: "named" },
    make("svg", { class: "swatch", viewBox: "0 0 26 12", "aria-hidden": "true" }, look),
    text,
  );
function captioned(title, keys, label) {
  const node = make("div", { class: "chart", tabindex: 0, "aria-label": label });
  const caption = make("figcaption", {}, make("b", {}, title), ...keys.flatMap(one => [" ", one]));
  return { node, figure: make("figure", {}, caption, node) };
}
// True labels as gray bars, predictions before the correction as dots, after it as lines.
function spanChart(row, { start, labels, before, after }) {
  const tint = color(row.method),
    bar = { fill: "var(--muted)", "fill-opacity": 0.3 },
    dot = { fill: "none", stroke: "var(--muted)", r: 2.2 },
    line = { stroke: tint, "stroke-width": 3, "stroke-linecap": "round" };
  const { node, figure } = captioned(
    "Labels over time",
    [
      key(make("rect", { x: 0, y: 1, width: 26, height: 10, ...bar }), "true"),
      key(make("circle", { cx: 13, cy: 6, ...dot }), "predicted before the correction"),
      key(make("line", { x1: 2, x2: 24, y1: 6, y2: 6, ...line }), "after it"),
    ],
    "True labels, and predictions before and after the correction, image by image",
  );
  const draw = () => {
    const every = [...labels, ...before, ...after];
    const box = frame(node, {
      height: 260,
      left: 40,
      top: 14,
      bottom: 24,
      x: [start, start + labels.length],
      y: [Math.min(...every) - 0.7, Math.max(...every) + 0.7],
      label: node.getAttribute("aria-label"),
    });
    const thick = Math.max(5, Math.min(18, 0.8 * (box.y(0) - box.y(1))));
    for (const [first, end, label] of runsOf(labels))
      box.svg.append(
        make("rect", {
          x: box.x(start + first),
          y: box.y(label) - thick / 2,
          width: box.x(start + end) - box.x(start + first),
          height: thick,
          ...bar,
        }),
      );
    before.forEach((label, i) =>
      box.svg.append(make("circle", { cx: box.x(start + i + 0.5), cy: box.y(label), ...dot })),
    );
    for (const [first, end, label] of runsOf(after))
      box.svg.append(
        make("line", {
          x1: box.x(start + first + 0.4),
          x2: box.x(start + end - 0.4),
          y1: box.y(label),
          y2: box.y(label),
          ...line,
        }),
      );
    fill(node, box.svg);
    follow(
      node,
      box,
      labels.map((_, i) => box.x(start + i + 0.5)),
      i =>
        tipTable(`image ${number(start + i + 1)}`, [
          [null, "true class", `${labels[i]}`],
          [null, "before the correction", `${before[i]}`],
          [null, "after it", `${after[i]}`],
        ]),
    );
  };
  return { figure, draw };
}
function shareChart(stream, row, { at: places, names, values }) {
  const look = i => ({
    fill: color(row.method),
    "fill-opacity": 0.12 + (0.83 * i) / Math.max(1, names.length - 1),
  });
  const { node, figure } = captioned(
    "What the correction relies on, in %",
    names.map((name, i) =>
      key(make("rect", { x: 0, y: 1, width: 26, height: 10, ...look(i) }), name),
    ),
    "Shares of what the correction relies on, over the stream",
  );
  const draw = () => {
    const box = frame(node, {
      height: 170,
      left: 40,
      top: 10,
      bottom: 24,
      x: [0, stream.samples],
      y: [0, 100],
      label: node.getAttribute("aria-label"),
    });
    let below = places.map(() => 0);
    values.forEach((share, i) => {
      const above = below.map((value, j) => value + share[j]);
      const edge = heights => places.map((place, j) => [box.x(place), box.y(heights[j])]);
      box.svg.append(make("path", { d: bandPath(edge(above), edge(below)), ...look(i) }));
      below = above;
    });
    boundaries(stream, box, false);
    fill(node, box.svg);
    follow(node, box, places.map(box.x), j =>
      tipTable(
        `${domainAt(stream, places[j])}, ${number(places[j])} images`,
        names.map((name, i) => [null, name, percent(values[i][j])]),
      ),
    );
  };
  return { figure, draw };
}
