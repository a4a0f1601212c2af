// What guards estimated without labels, next to the true error

function drawGuard() {
  const stream = current(),
    hidden = hiddenOf(stream);
  const rows = stream.rows.filter(row => row.guard && !hidden.has(row.id));
  at("guard").hidden = stream.in_pieces || !rows.length;
  if (at("guard").hidden) return;
  const node = at("guard-chart"),
    known = row =>
      row.guard.estimates
        .map((value, i) => [i, value])
        .filter(([i, value]) => value !== null && i < row.curve.smooth.length);
  const all = rows.flatMap(row => [...row.curve.smooth, ...known(row).map(([, value]) => value)]);
  const times = row => (row.guard.rollbacks.length === 1 ? "time" : "times");
  const box = frame(node, {
    height: 240,
    left: 38,
    right: 12,
    top: 18,
    x: [0, stream.samples],
    y: [0, Math.ceil(Math.max(10, ...all) / 10) * 10],
    xLabel: "images seen",
    label:
      "True and estimated error. " +
      rows
        .map(row => `${row.label.short}: ${row.guard.rollbacks.length} ${times(row)} rolled back`)
        .join("; "),
  });
  const place = i => box.x(Math.min(stream.samples, (i + 0.5) * stream.window));
  boundaries(stream, box, false);
  for (const row of rows) {
    const look = { fill: "none", stroke: color(row.method), "stroke-linejoin": "round" };
    const truth = known(row).map(([i]) => [place(i), box.y(row.curve.smooth[i])]);
    const guess = known(row).map(([i, value]) => [place(i), box.y(value)]);
    box.svg.append(
      make(
        "g",
        { "data-row": row.id, class: "line" },
        make("polygon", {
          points: [...truth, ...guess.toReversed()].map(point => point.join()).join(" "),
          fill: color(row.method),
          "fill-opacity": 0.15,
        }),
        make("path", { d: path(truth), ...look, "stroke-width": 2 }),
        make("path", { d: path(guess), ...look, "stroke-width": 1.6, "stroke-dasharray": "3 3" }),
        ...row.guard.rollbacks.map(seen =>
          make(
            "polygon",
            {
              class: "rollback",
              points: [-5, 5, 0].map((x, i) => `${box.x(seen) + x},${i < 2 ? 6 : 15}`).join(" "),
              fill: color(row.method),
            },
            make("title", {}, `${row.label.short}: rolled back after ${number(seen)} images`),
          ),
        ),
      ),
    );
  }
  fill(node, box.svg);
}
