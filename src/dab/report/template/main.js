// All

function drawStreams() {
  fill(
    at("streams"),
    make("span", { class: "muted" }, data.streams.length > 1 ? "Stream:" : "Stream: "),
    ...data.streams.map(stream =>
      make(
        "button",
        {
          type: "button",
          class: "choice",
          title: stream.detail,
          "data-key": stream.id,
          "aria-pressed": stream === current(),
          onclick: () => {
            chosen.stream = stream.id;
            chosen.shot = null;
            drawStream();
          },
        },
        stream.title,
      ),
    ),
    make("span", { class: "muted" }, current().detail),
  );
}
function drawStream() {
  drawStreams();
  drawTiles();
  drawTime();
  drawDomains();
  drawSize();
  drawCost();
  drawInside();
}
function drawAll() {
  const style = at("palette") || document.head.appendChild(make("style", { id: "palette" }));
  const set = i =>
    Object.values(data.palette)
      .map((pair, n) => `--m-${n}: ${pair[i ? "dark" : "light"]};`)
      .join("");
  style.textContent = `:root { ${set(0)} } :root[data-theme="dark"] { ${set(1)} }`;
  const runs = Object.values(data.runs),
    done = runs.filter(run => run.error !== undefined).length;
  const count = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`;
  at("summary").textContent =
    `${count(done, "finished run")}${done < runs.length ? `, ${runs.length - done} under way` : ""}, ${count(Object.keys(data.palette).length, "method")}, ${count(data.streams.length, "stream")}`;
  drawUnderway();
  drawTables();
  drawStream();
  drawRuns();
}

const system = matchMedia("(prefers-color-scheme: dark)");
const setTheme = dark => {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  if (at("palette")) drawInside();
};
system.addEventListener("change", event => setTheme(event.matches));
at("theme").addEventListener("click", () =>
  setTheme(document.documentElement.dataset.theme !== "dark"),
);
at("filter").addEventListener("input", drawRuns);
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) {
    width = innerWidth;
    hideTip();
    drawStream();
  }
});
addEventListener("keydown", event => {
  if (event.key === "Escape") hideTip();
});
setTheme(system.matches);
// At first the stream that most was run on.
chosen.stream = data.streams.reduce((best, stream) =>
  stream.rows.length > best.rows.length ? stream : best,
).id;
drawAll();

// Where a server is asked, it answers with the data of now; what did not change is not sent again.
const every = +document.documentElement.dataset.refresh || 0;
if (every) {
  let last = null;
  const ask = async () => {
    try {
      const answer = await fetch("data.json", { cache: "no-cache" });
      const text = await answer.text();
      if (answer.ok && text !== last) {
        last = text;
        data = JSON.parse(text);
        const y = scrollY;
        drawAll();
        scrollTo(0, y);
      }
      at("live").textContent = answer.ok ? "· live" : `· ${JSON.parse(text).error}`;
    } catch {
      at("live").textContent = "· the server does not answer";
    }
    setTimeout(ask, every * 1000);
  };
  setTimeout(ask, every * 1000);
}
