// Buffer size, cost

function hoverPoints(node, box, points) {
  follow(
    node,
    box,
    points.map(point => point.x),
    i => points[i].tip,
  );
}
const pen = make("canvas").getContext("2d");
function widthOf(text) {
  pen.font = `600 11.5px ${getComputedStyle(document.body).fontFamily}`; // as .label in page.css
  return pen.measureText(text).width + 2;
}
// Labels next to their points, where they cover no point, line or other label and are nearest to
// their own point; a label without room is shown only in the tooltip.
function nameAll(box, marks, lines = []) {
  const around = ([x, y], reach) => [x - reach, y - reach, x + reach, y + reach];
  const taken = marks.map(({ x, y }) => around([x, y], 7));
  for (const line of lines)
    for (let i = 1; i < line.length; i++) {
      const [[a, b], [c, d]] = [line[i - 1], line[i]];
      const steps = Math.ceil(Math.hypot(c - a, d - b) / 6);
      for (let step = 0; step <= steps; step++)
        taken.push(around([a + ((c - a) * step) / steps, b + ((d - b) * step) / steps], 2));
    }
  const gap = ([a, b, c, d], { x, y }) =>
    Math.hypot(Math.max(a - x, 0, x - c), Math.max(b - y, 0, y - d));
  for (const mark of marks) {
    const width = widthOf(mark.text);
    const places = [
      [9, 4],
      [-9, 4],
      [0, -11],
      [0, 19],
      [9, -9],
      [9, 17],
      [-9, -9],
      [-9, 17],
    ].map(([dx, dy]) => {
      const left = mark.x + dx - (dx > 0 ? 0 : dx < 0 ? width : width / 2);
      const anchor = dx > 0 ? "start" : dx < 0 ? "end" : "middle";
      const base = { x: mark.x + dx, y: mark.y + dy, "text-anchor": anchor };
      return { place: [left, mark.y + dy - 10, left + width, mark.y + dy + 3], base };
    });
    const free = places.find(
      ({ place }) =>
        place[0] >= box.left &&
        place[2] <= box.width &&
        place[1] >= box.top - 8 &&
        place[3] <= box.height - box.bottom &&
        !taken.some(
          ([a, b, c, d]) => place[0] < c && a < place[2] && place[1] < d && b < place[3],
        ) &&
        (mark.anywhere || marks.every(other => gap(place, other) >= gap(place, mark))),
    );
    if (!free) continue;
    taken.push(free.place);
    const look = { class: "label", style: `fill: ${mark.color}` };
    box.svg.append(make("text", { ...look, ...free.base }, mark.text));
  }
}
function drawSize() {
  const stream = current(),
    chart = stream.sizes,
    node = at("size");
  at("size-section").hidden = !chart;
  if (!chart) return;
  const lines = chart.lines.map(line => ({ name: line.name, rows: line.rows.map(rowOf) }));
  const sized = lines.flatMap(line => line.rows),
    source = finished(stream).find(row => row.is_source);
  at("size-note").textContent =
    "Images in the buffer on a logarithmic scale" +
    (sized.some(row => row.scores.deviation !== null)
      ? "; bars: standard deviation between seeds."
      : ".");
  const box = frame(node, {
    height: 290,
    right: 20,
    top: 20,
    x: [chart.sizes[0] / 1.25, chart.sizes[chart.sizes.length - 1] * 1.25],
    y: [chart.low, chart.high],
    log: true,
    xTicks: chart.sizes,
    xText: String,
    xLabel: "M",
    yLabel: "error in %",
    label: `Error against buffer size. ${sized.map(row => `${row.label.short}: ${percent(row.scores.error)}`).join("; ")}`,
  });
  const marks = [],
    drawn = [];
  if (source) {
    const y = box.y(source.scores.error),
      right = box.width - box.right;
    const look = { stroke: color(source.method), "stroke-width": 2 };
    box.svg.append(make("line", { x1: box.left, x2: right, y1: y, y2: y, ...look }));
    drawn.push([
      [box.left, y],
      [right, y],
    ]);
    marks.push({
      x: right,
      y,
      text: `${source.label.title} ${fixed(source.scores.error)}`,
      color: color(source.method),
      anywhere: true,
    });
  }
  for (const { name, rows } of lines) {
    const points = rows.map(row => [box.x(row.capacity), box.y(row.scores.error)]),
      tint = color(rows[0].method);
    box.svg.append(
      make("path", { d: path(points), fill: "none", stroke: tint, "stroke-width": 2.4 }),
    );
    rows.forEach((row, i) => {
      const [x, y] = points[i],
        { error, deviation } = row.scores;
      if (deviation)
        box.svg.append(
          make("line", {
            x1: x,
            x2: x,
            y1: box.y(error - deviation),
            y2: box.y(error + deviation),
            stroke: tint,
            "stroke-width": 1.5,
          }),
        );
      box.svg.append(shape(row.method, x, y));
      drawn.push([
        [x - 5, y],
        [x + 5, y],
      ]);
    });
    drawn.push(points);
    const [x, y] = points[points.length - 1];
    marks.push({ x, y, text: name, color: tint });
  }
  nameAll(box, marks, drawn);
  fill(node, box.svg);
  hoverPoints(
    node,
    box,
    chart.sizes.map(size => ({
      x: box.x(size),
      tip: tipTable(
        `M = ${size}`,
        sized
          .filter(row => row.capacity === size)
          .sort((a, b) => a.scores.rank - b.scores.rank)
          .map(row => [swatch(row), row.label.line, percent(row.scores.error)]),
      ),
    })),
  );
}
function drawCost() {
  const chart = current().cost,
    node = at("cost");
  at("cost-section").hidden = !chart;
  if (!chart) return;
  const rows = chart.rows.map(rowOf);
  const box = frame(node, {
    height: 290,
    right: 24,
    top: 20,
    x: [0, chart.most * 1.12],
    y: [chart.low, chart.high],
    xText: value => `${value} ×`,
    xLabel: "CPU time of a plain forward",
    yLabel: "error in %",
    bottom: 38,
    label: `Error against cost. ${rows.map(row => `${row.label.short}: ${fixed(row.scores.cost)} times a plain forward, ${percent(row.scores.error)}`).join("; ")}`,
  });
  const points = rows.map(row => ({
    row,
    x: box.x(row.scores.cost),
    y: box.y(row.scores.error),
    text: row.label.short,
    color: color(row.method),
  }));
  for (const { row, x, y } of points) box.svg.append(shape(row.method, x, y, 5.5));
  nameAll(box, points);
  fill(node, box.svg);
  hoverPoints(
    node,
    box,
    [...points]
      .sort((a, b) => a.x - b.x)
      .map(({ row, x }) => ({
        x,
        tip: tipTable(row.label.short, [
          [swatch(row), "error", percent(row.scores.error)],
          [null, "cost", `${row.scores.cost.toFixed(2)} ×`],
          [null, "memory", `${number(Math.round(row.scores.memory))} MiB`],
        ]),
      })),
  );
}
