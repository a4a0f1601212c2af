// The buffer over time

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
// Counts arrive as gray levels and are drawn in the colors of the page.
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
function sheet(title, note, { image: uri, labels, classes }) {
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

// The panel of the current stream that the reader has chosen, at first that of the best row.
function choosePanel(panels, kind, redraw) {
  const stream = current();
  const here = panels.filter(panel => stream.rows.some(row => row.id === panel.row));
  at(`${kind}-section`).hidden = !here.length;
  if (!here.length) return null;
  if (!here.some(panel => panel.run === chosen[kind])) {
    const rank = panel => rowOf(panel.row).scores.rank;
    chosen[kind] = [...here].sort((a, b) => rank(a) - rank(b))[0].run;
  }
  fill(
    at(`${kind}-rows`),
    ...here.map(panel =>
      choice(rowOf(panel.row).label.short, panel.run === chosen[kind], () => {
        chosen[kind] = panel.run;
        redraw();
      }),
    ),
  );
  return here.find(panel => panel.run === chosen[kind]);
}
const choice = (text, pressed, onclick) =>
  make("button", { type: "button", class: "choice", "aria-pressed": pressed, onclick }, text);
const leftOut = (count, what) =>
  count
    ? make(
        "p",
        { class: "note" },
        `The ${what} of ${count} more rows are left out to keep the page small. To see them, report on a folder with fewer runs.`,
      )
    : null;

function drawBuffer() {
  const stream = current(),
    panel = choosePanel(data.buffers, "buffer", drawBuffer);
  if (!panel) return;
  const { row: id, view } = panel,
    row = rowOf(id),
    looks = view.looks;
  at("buffer-lead").textContent = looks
    ? `On average, a batch of the stream was as varied as ${looks.mean_batch_variety.toFixed(1)} equally frequent classes of ${looks.classes}, and the buffer as ${looks.mean_buffer_variety.toFixed(1)}. The method learns from batches drawn from the buffer.`
    : "This run has no record of classes, ages and images.";
  const charts = [...(looks ? lookCharts(stream, row, looks) : []), ...rateCharts(stream, row, view)];
  fill(
    at("buffer"),
    ...(looks ? [moments(stream, looks), shots(row, looks), classMaps(stream, row, looks)] : []),
    make("div", { class: "two" }, ...charts.map(chart => chart.figure)),
    leftOut(data.buffers_left_out, "buffers"),
  );
  for (const chart of charts) chart.draw();
}
const shotOf = looks => {
  if (chosen.shot === null || chosen.shot >= looks.shots.length)
    chosen.shot = Math.min(2, looks.shots.length - 1);
  return looks.shots[chosen.shot];
};
function moments(stream, looks) {
  shotOf(looks);
  return make(
    "div",
    { class: "segments wrap", role: "group", "aria-label": "Moment" },
    ...looks.shots.map((shot, i) =>
      choice(`${domainAt(stream, shot.at)} · ${short(shot.at)}`, i === chosen.shot, () => {
        chosen.shot = i;
        drawBuffer();
      }),
    ),
  );
}
function shots(row, looks) {
  const { at: seen, batch, buffer } = shotOf(looks);
  return make(
    "div",
    { class: "two" },
    sheet(
      "What the stream showed",
      `after ${number(seen)} images: ${batch.labels.length} images of ${batch.classes} classes`,
      batch,
    ),
    sheet(
      "What the buffer held",
      `at that moment: ${buffer.labels.length} of ${row.capacity} images, of ${buffer.classes} predicted classes`,
      buffer,
    ),
  );
}
function classMaps(stream, row, looks) {
  return make(
    "div",
    { class: "two" },
    heat(
      "Classes in the stream's batches",
      "(one row per class)",
      looks.batch_classes,
      stream,
      looks.at,
      24,
      () => rgbOf("var(--muted)"),
    ),
    heat(
      "Classes in the buffer",
      "(as predicted, at the same moments)",
      looks.buffer_classes,
      stream,
      looks.at,
      Math.max(2, (2 * row.capacity) / looks.classes),
      () => rgbOf(color(row.method)),
    ),
  );
}
function lookCharts(stream, row, looks) {
  const tint = color(row.method),
    gray = "var(--muted)",
    age = i => looks.ages.map(ages => ages[i]);
  return [
    small("Variety", "in equally frequent classes: buffer; dotted: the stream's batch", stream, {
      y: [0, Math.ceil(Math.max(...looks.buffer_variety, ...looks.batch_variety) * 1.08)],
      at: looks.at,
      label: "Variety of the buffer's classes and of the stream's batches over time",
      lines: [
        { name: "buffer", values: looks.buffer_variety, color: tint },
        { name: "stream's batch", values: looks.batch_variety, color: gray, dash: "2 3" },
      ],
    }),
    small("Age", "in images of the stream: median and quartiles; dotted: oldest", stream, {
      y: [0, Math.max(1, ...age(4)) * 1.05],
      at: looks.at,
      label: "Age of the buffer's images over time",
      band: { low: age(1), high: age(3), color: tint },
      lines: [
        { name: "median", values: age(2), color: tint },
        { name: "oldest", values: age(4), color: gray, dash: "2 3" },
      ],
    }),
  ];
}
function rateCharts(stream, row, view) {
  const tint = color(row.method);
  return [
    small("Fill", `in images, of ${row.capacity}`, stream, {
      y: [0, row.capacity * 1.05],
      at: view.at,
      label: "Fill of the buffer over time",
      lines: [{ name: "fill", values: view.fill, color: tint }],
    }),
    small("Rates", "in %: images admitted; dotted: calls that updated", stream, {
      y: [0, 100],
      at: view.at,
      unit: " %",
      label: "Admission and update rate over time",
      lines: [
        { name: "admitted", values: view.admitted, color: tint },
        { name: "updated", values: view.updated, color: "var(--muted)", dash: "2 3" },
      ],
    }),
  ];
}
