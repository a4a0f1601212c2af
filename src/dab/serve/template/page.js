// The streams of a server, asked for again and again.

const every = +document.documentElement.dataset.refresh;
let token = sessionStorage.getItem("token");
let opened = null; // the stream whose buffer is shown
let shown = null; // what is shown of it: the same after the same request

const number = value => value.toLocaleString("en");
const percent = value => (value === null ? "–" : `${(100 * value).toFixed(0)} %`);
const cell = (...children) => make("td", {}, ...children);
const ago = seconds =>
  seconds < 60
    ? `${Math.max(0, Math.round(seconds))} s ago`
    : seconds < 3600
      ? `${Math.round(seconds / 60)} min ago`
      : `${Math.round(seconds / 3600)} h ago`;

class Refused extends Error {}

async function get(path) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { cache: "no-store", headers });
  if (answer.status === 401) throw new Refused();
  return { found: answer.ok, body: await answer.json() };
}

function drawTiles(data) {
  const tile = (value, name) =>
    make("div", { class: "tile" }, make("b", {}, number(value)), make("span", {}, name));
  fill(
    at("tiles"),
    tile(data.total, data.total === 1 ? "stream" : "streams"),
    ...Object.entries(data.states).map(([state, count]) => tile(count, state)),
    data.saved ? tile(data.saved, "saved, not seen since the start") : null,
  );
}

function drawRow(status, now) {
  const open = make(
    "button",
    {
      type: "button",
      "aria-expanded": status.stream === opened,
      "aria-controls": "details",
      "data-key": status.stream,
      onclick: () => {
        opened = status.stream === opened ? null : status.stream;
        ask();
      },
    },
    status.stream,
  );
  const trouble = status.state === "failed" || status.state === "suspicious";
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, open),
    make("td", { class: trouble ? "worse" : null, title: status.doing }, status.state),
    cell(percent(status.estimated_error)),
    cell(number(status.images)),
    cell(number(status.updates)),
    cell(number(status.rollbacks)),
    cell(
      status.buffered
        ? `${number(status.buffered)} images, ${number(status.held)} ${status.held === 1 ? "class" : "classes"}`
        : "–",
    ),
    cell(ago(now - status.seen)),
  );
}

function drawDetails(body) {
  at("details-title").textContent = `Buffer of ${body.stream}`;
  at("details-status").textContent = body.status;
  const classes = body.buffer.classes; // the most frequent first
  const most = Math.max(1, ...classes.map(one => one.images));
  at("details-note").textContent = classes.length
    ? `${number(body.buffer.images)} images of ${number(classes.length)} classes, as predicted when they were admitted.`
    : "The buffer is empty.";
  fill(
    at("classes"),
    make(
      "table",
      {},
      make(
        "tbody",
        {},
        ...classes.map(({ label, images }) =>
          make(
            "tr",
            {},
            make("th", { scope: "row" }, label),
            cell(make("progress", { max: most, value: images, "aria-label": label })),
            cell(number(images)),
          ),
        ),
      ),
    ),
  );
}

async function draw() {
  const { body } = await get("streams");
  drawTiles(body);
  fill(at("streams"), ...body.streams.map(status => drawRow(status, body.now)));
  const hidden = body.total - body.streams.length;
  at("more").textContent = hidden
    ? `${number(hidden)} more streams are not shown.`
    : body.total
      ? ""
      : "No stream yet: POST an image to /streams/NAME/predict.";
  const seen = body.streams.find(status => status.stream === opened)?.seen;
  if (opened !== null && shown !== `${seen} ${opened}`) {
    const one = await get(`streams/${encodeURIComponent(opened)}`);
    if (one.found) drawDetails(one.body);
    else opened = null;
    shown = `${seen} ${opened}`;
  }
  at("details").hidden = opened === null;
}

let timer = null;
async function ask() {
  clearTimeout(timer);
  try {
    await draw();
    at("ask").hidden = true;
    at("live").textContent = "· live";
  } catch (error) {
    const refused = error instanceof Refused;
    if (refused) at("ask").hidden = false;
    at("live").textContent = refused
      ? token
        ? "· wrong token"
        : "· a token is required"
      : "· the server does not respond";
    if (refused) return; // until there is another one
  }
  timer = setTimeout(ask, every * 1000);
}

at("ask").addEventListener("submit", event => {
  event.preventDefault();
  token = at("token").value;
  sessionStorage.setItem("token", token);
  ask();
});

const system = matchMedia("(prefers-color-scheme: dark)");
const setTheme = dark => {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
};
system.addEventListener("change", event => setTheme(event.matches));
at("theme").addEventListener("click", () =>
  setTheme(document.documentElement.dataset.theme !== "dark"),
);
setTheme(system.matches);
ask();
