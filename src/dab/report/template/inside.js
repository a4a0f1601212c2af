// Inside the buffer

function small(title, note, stream, { y, label, lines, band, at: places, unit = "" }) {
  const node = make("div", { class: "chart", tabindex: 0, "aria-label": label });
  const figure = make("figure", {}, make("figcaption", {}, make("b", {}, title), ` ${note}`), node);
  const draw = () => {
    const box = frame(node, {
      height: 170,
      left: 40,
      top: 10,
      x: [0, stream.samples],
      y,
      label,
      bottom: 24,
    });
    boundaries(stream, box, false);
    if (band)
      box.svg.append(
        make("path", {
          d: bandPath(
            places.map((p, i) => [box.x(p), box.y(band.high[i])]),
            places.map((p, i) => [box.x(p), box.y(band.low[i])]),
          ),
          fill: band.color,
          "fill-opacity": 0.22,
        }),
      );
    for (const line of lines)
      box.svg.append(
        make("path", {
          d: path(places.map((p, i) => [box.x(p), box.y(line.values[i])])),
          fill: "none",
          stroke: line.color,
          "stroke-width": 2,
          "stroke-dasharray": line.dash,
        }),
      );
    fill(node, box.svg);
    follow(node, box, places.map(box.x), i =>
      tipTable(
        `${domainAt(stream, places[i])}, ${number(places[i])} images`,
        lines.map(line => [null, line.name, `${number(+line.values[i].toFixed(1))}${unit}`]),
      ),
    );
  };
  return { figure, draw };
}
// Counts came as gray levels; they are drawn in the colors of the page.
function heat(title, note, uri, stream, places, most, rgb) {
  const canvas = make("canvas", { role: "img", tabindex: 0, "aria-label": `${title} ${note}` });
  canvas.style.height = "150px";
  const picture = new Image();
  picture.onload = () => {
    const { width, height } = picture;
    canvas.width = width;
    canvas.height = height;
    const pen = canvas.getContext("2d", { willReadFrequently: true });
    pen.drawImage(picture, 0, 0);
    const pixels = pen.getImageData(0, 0, width, height),
      counts = new Uint8Array(width * height);
    const [r, g, b] = rgb();
    for (let i = 0; i < counts.length; i++) {
      counts[i] = pixels.data[4 * i];
      const strength = counts[i] ? 0.2 + 0.8 * Math.min(1, counts[i] / most) : 0;
      pixels.data.set([r, g, b, Math.round(255 * strength)], 4 * i);
    }
    pen.clearRect(0, 0, width, height);
    pen.putImageData(pixels, 0, 0);
    let [x, y] = [-1, 0];
    const within = (value, size) => Math.max(0, Math.min(size - 1, Math.floor(value)));
    const show = (left, top) =>
      showTip(
        tipTable(`class ${y}`, [
          [null, domainAt(stream, places[x]), ""],
          [null, `at ${number(places[x])} images`, `${counts[y * width + x]}`],
        ]),
        left,
        top,
      );
    canvas.onpointermove = event => {
      const rect = canvas.getBoundingClientRect();
      x = within(((event.clientX - rect.left) / rect.width) * width, width);
      y = within(((event.clientY - rect.top) / rect.height) * height, height);
      show(event.pageX, event.pageY);
    };
    canvas.onkeydown = event => {
      const steps = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
      const step = steps[event.key];
      if (!step) return;
      event.preventDefault();
      x = within(x + step[0], width);
      y = within(y + step[1], height);
      const rect = canvas.getBoundingClientRect();
      show(
        rect.left + scrollX + ((x + 0.5) / width) * rect.width,
        rect.top + scrollY + ((y + 0.5) / height) * rect.height,
      );
    };
    canvas.onpointerleave = canvas.onblur = hideTip;
  };
  picture.src = uri;
  return make("figure", {}, make("figcaption", {}, make("b", {}, title), ` ${note}`), canvas);
}
function sheet(title, note, { sheet: uri, labels }) {
  const classes = new Set(labels).size;
  const image = make("img", {
    class: "sheet",
    src: uri,
    alt: `${title}: ${labels.length} images of ${classes} classes`,
  });
  image.onpointermove = event => {
    const rect = image.getBoundingClientRect();
    const i =
      8 * Math.floor(((event.clientY - rect.top) / rect.height) * Math.ceil(labels.length / 8)) +
      Math.floor(((event.clientX - rect.left) / rect.width) * 8);
    if (labels[i] === undefined) hideTip();
    else showTip([make("b", {}, `class ${labels[i]}`)], event.pageX, event.pageY);
  };
  image.onpointerleave = hideTip;
  return make("figure", {}, make("figcaption", {}, make("b", {}, title), ` ${note}`), image);
}
const rgbOf = text => {
  const probe = make("span", { style: `color: ${text}` });
  document.body.append(probe);
  const found = getComputedStyle(probe)
    .color.match(/[\d.]+/g)
    .slice(0, 3)
    .map(Number);
  probe.remove();
  return found;
};

function drawInside() {
  const stream = current();
  const held = Object.entries(data.insides).filter(([, inside]) =>
    stream.rows.some(row => row.id === inside.row),
  );
  at("inside-section").hidden = !held.length;
  if (!held.length) return;
  const names = held.map(([name]) => name);
  if (!names.includes(chosen.inside)) {
    const rowIn = ([, inside]) => stream.rows.find(row => row.id === inside.row);
    const order = entry => (rowIn(entry).method === "dab" ? 0 : 1000) + rowIn(entry).error;
    chosen.inside = [...held].sort((a, b) => order(a) - order(b))[0][0];
  }
  const inside = data.insides[chosen.inside],
    row = stream.rows.find(found => found.id === inside.row);
  fill(
    at("inside-rows"),
    ...held.map(([name, one]) => {
      const r = stream.rows.find(found => found.id === one.row);
      return make(
        "button",
        {
          type: "button",
          class: "choice",
          "aria-pressed": name === chosen.inside,
          onclick: () => {
            chosen.inside = name;
            drawInside();
          },
        },
        r.label,
      );
    }),
  );
  const tint = color(row.method),
    gray = "var(--muted)";
  const charts = [],
    parts = [];
  if (inside.shots) {
    if (chosen.shot === null || chosen.shot >= inside.shots.length)
      chosen.shot = Math.min(2, inside.shots.length - 1);
    const shot = inside.shots[chosen.shot];
    const kinds = labels => new Set(labels).size;
    const mean = list => list.reduce((a, b) => a + b, 0) / Math.max(1, list.length);
    const full = inside.look_at.map((_, i) => i).filter(i => inside.buffer_balance[i] > 0);
    at("inside-lead").textContent =
      `On average a batch of the stream was as varied as ${mean(inside.batch_balance).toFixed(1)} equally frequent classes, the buffer as ${mean(full.map(i => inside.buffer_balance[i])).toFixed(1)}, of ${inside.classes}: what is learned from is drawn from the buffer, however sorted the stream is.`;
    parts.push(
      make(
        "div",
        { class: "segments wrap", role: "group", "aria-label": "Moment" },
        ...inside.shots.map((one, i) =>
          make(
            "button",
            {
              type: "button",
              class: "choice",
              "aria-pressed": i === chosen.shot,
              onclick: () => {
                chosen.shot = i;
                drawInside();
              },
            },
            `${domainAt(stream, one.at)} · ${short(one.at)}`,
          ),
        ),
      ),
      make(
        "div",
        { class: "two" },
        sheet(
          "What the stream showed",
          `after ${number(shot.at)} images: ${shot.batch.labels.length} of ${kinds(shot.batch.labels)} classes`,
          shot.batch,
        ),
        sheet(
          "What the buffer held",
          `then: ${shot.buffer.labels.length} of ${row.capacity} images, of ${kinds(shot.buffer.labels)} predicted classes`,
          shot.buffer,
        ),
      ),
    );
    const ages = inside.ages.map(a => a.map(v => Math.max(0, v)));
    parts.push(
      make(
        "div",
        { class: "two" },
        heat(
          "Classes in the stream's batches",
          "(a row for each)",
          inside.batch_classes,
          stream,
          inside.look_at,
          24,
          () => rgbOf("var(--muted)"),
        ),
        heat(
          "Classes in the buffer",
          "(as predicted, at the same moments)",
          inside.buffer_classes,
          stream,
          inside.look_at,
          Math.max(2, (2 * row.capacity) / inside.classes),
          () => rgbOf(tint),
        ),
      ),
    );
    charts.push(
      small(
        "Variety",
        "in equally frequent classes: buffer, and dotted the stream's batch",
        stream,
        {
          y: [0, Math.ceil(Math.max(...inside.buffer_balance, ...inside.batch_balance) * 1.08)],
          at: inside.look_at,
          label: "Variety of the buffer's classes and of the stream's batches over time",
          lines: [
            { name: "buffer", values: inside.buffer_balance, color: tint },
            { name: "stream's batch", values: inside.batch_balance, color: gray, dash: "2 3" },
          ],
        },
      ),
      small("Age", "in images of the stream: median, quartiles, oldest dotted", stream, {
        y: [0, Math.max(1, ...ages.map(a => a[4])) * 1.05],
        at: inside.look_at,
        label: "Age of the buffer's items over time",
        band: { low: ages.map(a => a[1]), high: ages.map(a => a[3]), color: tint },
        lines: [
          { name: "median", values: ages.map(a => a[2]), color: tint },
          { name: "oldest", values: ages.map(a => a[4]), color: gray, dash: "2 3" },
        ],
      }),
    );
  } else
    at("inside-lead").textContent =
      "This run is from before classes, ages and images were recorded; run it again to see them.";
  charts.push(
    small("Fill", `in images, of ${row.capacity}`, stream, {
      y: [0, row.capacity * 1.05],
      at: inside.at,
      label: "Fill of the buffer over time",
      lines: [{ name: "fill", values: inside.fill, color: tint }],
    }),
    small("Rates", "in %: images admitted, and dotted calls that updated", stream, {
      y: [0, 100],
      at: inside.at,
      unit: " %",
      label: "Admission and update rate over time",
      lines: [
        { name: "admitted", values: inside.admitted.map(v => 100 * v), color: tint },
        { name: "updated", values: inside.updated.map(v => 100 * v), color: gray, dash: "2 3" },
      ],
    }),
  );
  parts.push(make("div", { class: "two" }, ...charts.map(chart => chart.figure)));
  if (data.insides_left_out)
    parts.push(
      make(
        "p",
        { class: "note" },
        `The buffers of ${data.insides_left_out} more rows are left out to keep the page small: a report of a folder with fewer runs shows them.`,
      ),
    );
  fill(at("inside"), ...parts);
  for (const chart of charts) chart.draw();
}
