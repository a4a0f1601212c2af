// Buffer size, cost

function hoverPoints(node, box, points) {
  follow(
    node,
    box,
    points.map(point => point.x),
    i => points[i].tip,
  );
}
// Names beside their points, wherever they cover no point, line or other name, and are nearest to
// their own; a name for which there is no room is left to the tip.
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
    const width = mark.text.length * 7.4;
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
    rows = stream.rows.filter(row => row.error !== undefined);
  const sized = rows.filter(row => row.capacity !== null);
  const groups = new Map();
  for (const row of sized) groups.set(row.line, [...(groups.get(row.line) || []), row]);
  const lines = [...groups.values()].map(group => group.sort((a, b) => a.capacity - b.capacity));
  at("size-section").hidden = !lines.some(line => line.length > 1);
  if (at("size-section").hidden) return;
  const sizes = [...new Set(sized.map(row => row.capacity))].sort((a, b) => a - b);
  const source = rows.find(row => row.is_source),
    node = at("size");
  const errors = [...sized, ...(source ? [source] : [])].flatMap(row => [
    row.error + (row.deviation || 0),
    row.error - (row.deviation || 0),
  ]);
  const [low, high] = [
    Math.floor((Math.min(...errors) - 1) / 5) * 5,
    Math.ceil((Math.max(...errors) + 1) / 5) * 5,
  ];
  const box = frame(node, {
    height: 290,
    right: 20,
    top: 20,
    x: [sizes[0] / 1.25, sizes[sizes.length - 1] * 1.25],
    y: [Math.max(0, low), high],
    log: true,
    xTicks: sizes,
    xText: String,
    xLabel: "M",
    yLabel: "error in %",
    label: `Error against buffer size. ${sized.map(row => `${row.label}: ${row.error.toFixed(1)} %`).join("; ")}`,
  });
  if (source) {
    const y = box.y(source.error);
    box.svg.append(
      make("line", {
        x1: box.left,
        x2: box.width - box.right,
        y1: y,
        y2: y,
        stroke: color("source"),
        "stroke-width": 2,
      }),
    );
  }
  const points = [],
    marks = [],
    drawn = [];
  lines.forEach(line => {
    box.svg.append(
      make("path", {
        d: path(line.map(row => [box.x(row.capacity), box.y(row.error)])),
        fill: "none",
        stroke: color(line[0].method),
        "stroke-width": 2.4,
      }),
    );
    for (const row of line) {
      const x = box.x(row.capacity);
      if (row.deviation)
        box.svg.append(
          make("line", {
            x1: x,
            x2: x,
            y1: box.y(row.error - row.deviation),
            y2: box.y(row.error + row.deviation),
            stroke: color(row.method),
            "stroke-width": 1.5,
          }),
        );
      box.svg.append(shape(row.method, x, box.y(row.error)));
    }
    drawn.push(line.map(row => [box.x(row.capacity), box.y(row.error)]));
    const [x, y] = drawn[drawn.length - 1][line.length - 1];
    const alone = lines.filter(other => other[0].method === line[0].method).length === 1;
    const text = alone ? line[0].method : line[0].line;
    marks.push({ x, y, text, color: color(line[0].method) });
    for (const [left, top] of drawn[drawn.length - 1])
      drawn.push([
        [left - 5, top],
        [left + 5, top],
      ]);
  });
  if (source) {
    const y = box.y(source.error),
      right = box.width - box.right;
    drawn.push([
      [box.left, y],
      [right, y],
    ]);
    const text = `source ${source.error.toFixed(1)}`;
    marks.unshift({ x: right, y, text, color: color("source"), anywhere: true });
  }
  nameAll(box, marks, drawn);
  for (const size of sizes)
    points.push({
      x: box.x(size),
      tip: tipTable(
        `M = ${size}`,
        sized
          .filter(row => row.capacity === size)
          .sort((a, b) => a.error - b.error)
          .map(row => [swatch(row), row.name, percent(row.error)]),
      ),
    });
  fill(node, box.svg);
  hoverPoints(node, box, points);
}
function drawCost() {
  const stream = current(),
    rows = stream.rows.filter(row => row.error !== undefined && row.cost);
  at("cost-section").hidden = rows.length < 2;
  if (rows.length < 2) return;
  const node = at("cost"),
    most = Math.max(...rows.map(row => row.cost)),
    errors = rows.map(row => row.error);
  const [low, high] = [
    Math.max(0, Math.floor((Math.min(...errors) - 2) / 5) * 5),
    Math.ceil((Math.max(...errors) + 2) / 5) * 5,
  ];
  const box = frame(node, {
    height: 290,
    right: 24,
    top: 20,
    x: [0, most * 1.12],
    y: [low, high],
    xText: value => `${value} ×`,
    xLabel: "processor time of a plain forward",
    yLabel: "error in %",
    bottom: 38,
    label: `Cost against error. ${rows.map(row => `${row.label}: ${row.cost.toFixed(1)} times a plain forward, ${row.error.toFixed(1)} %`).join("; ")}`,
  });
  const marks = [...rows]
    .sort((a, b) => a.error - b.error)
    .map(row => ({ row, x: box.x(row.cost), y: box.y(row.error) }));
  for (const { row, x, y } of marks) box.svg.append(shape(row.method, x, y, 5.5));
  nameAll(
    box,
    marks.map(({ row, x, y }) => ({ x, y, text: row.label, color: color(row.method) })),
  );
  fill(node, box.svg);
  const ordered = [...rows].sort((a, b) => a.cost - b.cost);
  hoverPoints(
    node,
    box,
    ordered.map(row => ({
      x: box.x(row.cost),
      tip: tipTable(row.label, [
        [swatch(row), "error", percent(row.error)],
        [null, "cost", `${row.cost.toFixed(2)} ×`],
        [null, "memory", `${number(Math.round(row.memory))} MiB`],
      ]),
    })),
  );
}
