// What the reader has chosen; it stays as it is when newer data arrive.
const chosen = {
  stream: null,
  hidden: new Map(),
  view: "error",
  sort: new Map(),
  buffer: null,
  shot: null,
  correction: null,
  span: 0,
  open: new Set(),
};
let data = JSON.parse(document.getElementById("data").textContent);

// Small parts

// One decimal with halves rounded to even, as in the tables that Python writes. Of numbers that end
// in 5 only quarters are exact; toFixed rounds these up.
const fixed = value => (value % 1 === 0.25 ? value - 0.05 : value).toFixed(1);
const signed = value => `${value > 0 ? "+" : value < 0 ? "−" : ""}${fixed(Math.abs(value))}`;
const number = value => value.toLocaleString("en");
const percent = value => `${fixed(value)} %`;
const color = method => `var(--m-${Object.keys(data.styles).indexOf(method)})`;
const DASHES = ["", "7 3", "2 3", "10 3 2 3", "4 2 1 2 1 2"];
const dash = row => DASHES[row.label.variant % DASHES.length];

// A method also has a shape, for readers who cannot tell its color.
const SHAPES = ["circle", "square", "triangle", "diamond", "down", "plus"];
function shape(method, x, y, size = 5) {
  const kind = SHAPES[data.styles[method].shape % SHAPES.length];
  const points = {
    square: [
      [-1, -1],
      [1, -1],
      [1, 1],
      [-1, 1],
    ],
    triangle: [
      [0, -1.2],
      [1.2, 1],
      [-1.2, 1],
    ],
    diamond: [
      [0, -1.35],
      [1.35, 0],
      [0, 1.35],
      [-1.35, 0],
    ],
    down: [
      [0, 1.2],
      [1.2, -1],
      [-1.2, -1],
    ],
    plus: [
      [-0.5, -1.3],
      [0.5, -1.3],
      [0.5, -0.5],
      [1.3, -0.5],
      [1.3, 0.5],
      [0.5, 0.5],
      [0.5, 1.3],
      [-0.5, 1.3],
      [-0.5, 0.5],
      [-1.3, 0.5],
      [-1.3, -0.5],
      [-0.5, -0.5],
    ],
  }[kind];
  const look = { fill: color(method), stroke: "var(--ground)", "stroke-width": 1.2 };
  if (!points) return make("circle", { cx: x, cy: y, r: size, ...look });
  return make("polygon", {
    points: points.map(([a, b]) => `${x + a * size},${y + b * size}`).join(" "),
    ...look,
  });
}
function swatch(row) {
  return make(
    "svg",
    { class: "swatch", viewBox: "0 0 26 12", "aria-hidden": "true" },
    make("line", {
      x1: 0,
      x2: 26,
      y1: 6,
      y2: 6,
      stroke: color(row.method),
      "stroke-width": row.is_source ? 2 : 2.6,
      "stroke-dasharray": dash(row),
    }),
    shape(row.method, 13, 6, 3.6),
  );
}

const named = (row, name) => make("span", { class: "named" }, swatch(row), name);
const rowOf = id => data.streams.flatMap(stream => stream.rows).find(row => row.id === id);
const finished = stream => stream.rows.filter(row => row.scores);

// A button that saves text as a file.
const download = (text, name, title) =>
  make(
    "button",
    {
      type: "button",
      class: "download",
      onclick: () => {
        const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
        make("a", { href: url, download: name }).click();
        setTimeout(() => URL.revokeObjectURL(url), 1000);
      },
    },
    title,
  );

const tip = at("tip");
function showTip(content, x, y) {
  fill(tip, ...content);
  tip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tip;
  const left =
    x + 16 + width > scrollX + document.documentElement.clientWidth - 6 ? x - width - 14 : x + 16;
  tip.style.left = `${Math.max(scrollX + 6, left)}px`;
  tip.style.top = `${Math.max(scrollY + 6, Math.min(y - height / 2, scrollY + innerHeight - height - 6))}px`;
}
const hideTip = () => {
  tip.hidden = true;
};
const tipTable = (title, lines) => [
  make("h4", {}, title),
  make(
    "table",
    {},
    make(
      "tbody",
      {},
      ...lines.map(([mark, name, value]) =>
        make("tr", {}, make("td", {}, ...[mark, name].filter(Boolean)), make("td", {}, value)),
      ),
    ),
  ),
];

function ticks(low, high, about) {
  const rough = (high - low) / Math.max(1, about),
    power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 2.5, 5, 10].map(f => f * power).find(s => s >= rough) || power;
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step)
    found.push(+value.toFixed(6));
  return found;
}
const short = value =>
  value >= 1e6 ? `${value / 1e6}M` : value >= 1000 ? `${+(value / 1000).toFixed(1)}k` : `${value}`;

// A frame with axes; x and y map numbers to places.
function frame(
  node,
  {
    height,
    left = 42,
    right = 12,
    top = 10,
    bottom = 34,
    x: [x0, x1],
    y: [y0, y1],
    xLabel,
    yLabel,
    xTicks,
    yTicks,
    xText = short,
    label,
    log = false,
  },
) {
  const width = Math.max(260, node.clientWidth || 600);
  const scale = log ? Math.log2 : value => value;
  const x = value =>
    left + ((scale(value) - scale(x0)) / (scale(x1) - scale(x0) || 1)) * (width - left - right);
  const y = value => height - bottom - ((value - y0) / (y1 - y0 || 1)) * (height - top - bottom);
  const svg = make("svg", {
    viewBox: `0 0 ${width} ${height}`,
    height,
    "aria-hidden": "true",
  });
  node.setAttribute("role", "img"); // the node takes the focus, so it has the name
  node.setAttribute("aria-label", label);
  for (const value of yTicks || ticks(y0, y1, height / 48)) {
    svg.append(
      make("line", {
        class: value === 0 ? "base" : "axis",
        x1: left,
        x2: width - right,
        y1: y(value),
        y2: y(value),
      }),
      make("text", { x: left - 7, y: y(value) + 4, "text-anchor": "end" }, `${value}`),
    );
  }
  for (const value of xTicks || ticks(x0, x1, width / 110)) {
    svg.append(
      make("text", { x: x(value), y: height - bottom + 16, "text-anchor": "middle" }, xText(value)),
    );
  }
  svg.append(
    make("line", {
      class: "base",
      x1: left,
      x2: width - right,
      y1: height - bottom,
      y2: height - bottom,
    }),
  );
  if (xLabel)
    svg.append(make("text", { x: width - right, y: height - 3, "text-anchor": "end" }, xLabel));
  if (yLabel)
    svg.append(
      make(
        "text",
        { x: left, y: top - 2 - (top > 20 ? top - 12 : 0), "text-anchor": "start" },
        yLabel,
      ),
    );
  return { svg, x, y, width, height, left, right, top, bottom };
}
const path = points =>
  points.map(([a, b], i) => `${i ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
function bandPath(upper, lower) {
  return `${path(upper)}L${path([...lower].reverse()).slice(1)}Z`;
}

function boundaries(stream, box, named) {
  if (!stream.ends) return;
  let start = 0;
  stream.ends.forEach((end, i) => {
    if (i < stream.ends.length - 1)
      box.svg.append(
        make("line", {
          class: "domain",
          x1: box.x(end),
          x2: box.x(end),
          y1: named ? box.top - 4 : box.top,
          y2: box.height - box.bottom,
        }),
      );
    if (named) {
      const room = box.x(end) - box.x(start),
        middle = (box.x(end) + box.x(start)) / 2;
      const upright = room < 40;
      box.svg.append(
        make(
          "text",
          upright
            ? {
                x: 0,
                y: 0,
                transform: `translate(${middle + 4} ${box.top - 6}) rotate(-90)`,
                "text-anchor": "start",
              }
            : { x: middle, y: box.top - 8, "text-anchor": "middle" },
          stream.short[i],
        ),
      );
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
  const cursor = make("line", {
    class: "cursor",
    y1: box.top,
    y2: box.height - box.bottom,
    visibility: "hidden",
  });
  box.svg.append(cursor);
  node.tabIndex = 0;
  let index = -1;
  const go = (i, y) => {
    index = Math.max(0, Math.min(places.length - 1, i));
    cursor.setAttribute("x1", places[index]);
    cursor.setAttribute("x2", places[index]);
    cursor.setAttribute("visibility", "visible");
    const rect = box.svg.getBoundingClientRect(),
      ratio = rect.width / box.width;
    showTip(
      show(index),
      rect.left + scrollX + places[index] * ratio,
      scrollY + (y ?? rect.top + rect.height / 2),
    );
  };
  const end = () => {
    cursor.setAttribute("visibility", "hidden");
    hideTip();
  };
  box.svg.addEventListener("pointermove", event => {
    const rect = box.svg.getBoundingClientRect(),
      x = ((event.clientX - rect.left) * box.width) / rect.width;
    let best = 0;
    places.forEach((place, i) => {
      if (Math.abs(place - x) < Math.abs(places[best] - x)) best = i;
    });
    go(best, event.clientY);
  });
  box.svg.addEventListener("pointerleave", end);
  node.onblur = end;
  node.onkeydown = event => {
    const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (step) {
      event.preventDefault();
      go(index < 0 ? 0 : index + step);
    } else if (event.key === "Escape") end();
  };
}
