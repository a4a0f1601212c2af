// Buffer size, cost

function hoverPoints(node, box, points) {
  follow(
    node,
    box,
    points.map(point => point.x),
    i => points[i].tip,
  );
}
function drawSize() {
  const stream = current(),
    rows = stream.rows.filter(row => row.error !== undefined);
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
        stroke: colour("source"),
        "stroke-width": 2,
      }),
      make(
        "text",
        {
          class: "label",
          x: box.width - box.right,
          y: y - 5,
          "text-anchor": "end",
          style: `fill: ${colour("source")}`,
        },
        `source ${source.error.toFixed(1)}`,
      ),
    );
  }
  const points = [];
  lines.forEach(line => {
    box.svg.append(
      make("path", {
        d: path(line.map(row => [box.x(row.capacity), box.y(row.error)])),
        fill: "none",
        stroke: colour(line[0].method),
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
            stroke: colour(row.method),
            "stroke-width": 1.5,
          }),
        );
      box.svg.append(shape(row.method, x, box.y(row.error)));
    }
    const last = line[line.length - 1];
    box.svg.append(
      make(
        "text",
        {
          class: "label",
          x: box.x(last.capacity),
          y: box.y(last.error) - 10,
          "text-anchor": "end",
          style: `fill: ${colour(last.method)}`,
        },
        last.method,
      ),
    );
  });
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
  const taken = [];
  for (const row of [...rows].sort((a, b) => a.error - b.error)) {
    const x = box.x(row.cost),
      y = box.y(row.error);
    box.svg.append(shape(row.method, x, y, 5.5));
    const end = x > box.width * 0.68,
      width = row.label.length * 6.4;
    const span = end ? [x - 9 - width, x - 9] : [x + 9, x + 9 + width];
    if (!taken.some(([a, b, at_]) => Math.abs(at_ - y) < 12 && a < span[1] && span[0] < b)) {
      taken.push([...span, y]);
      box.svg.append(
        make(
          "text",
          {
            class: "label",
            x: end ? x - 9 : x + 9,
            y: y + 4,
            "text-anchor": end ? "end" : "start",
            style: `fill: ${colour(row.method)}`,
          },
          row.label,
        ),
      );
    }
  }
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
