// All

function drawStreams() {
  fill(
    at("streams"),
    make("span", { class: "muted" }, "Stream:"),
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
            chosen.span = 0;
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
  drawBuffer();
  drawCorrection();
}
function drawAll() {
  const style = at("palette") || document.head.appendChild(make("style", { id: "palette" }));
  const set = theme =>
    Object.values(data.styles)
      .map((method, n) => `--m-${n}: ${method[theme]};`)
      .join("");
  style.textContent = `:root { ${set("light")} } :root[data-theme="dark"] { ${set("dark")} }`;
  at("summary").textContent = data.headline;
  drawWords();
  drawProgress();
  drawTables();
  drawComparison();
  drawStream();
  drawRuns();
}

const system = matchMedia("(prefers-color-scheme: dark)");
const setTheme = dark => {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  if (at("palette")) drawBuffer();
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
chosen.stream = data.first_stream;
drawAll();

// A page from a server asks it for newer data; what has not changed is not sent again.
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
      at("live").textContent = "· the server does not respond";
    }
    setTimeout(ask, every * 1000);
  };
  setTimeout(ask, every * 1000);
}
