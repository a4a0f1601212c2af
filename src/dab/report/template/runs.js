// Runs

function copy(text, button) {
  const said = () => {
    button.textContent = "copied";
    setTimeout(() => {
      button.textContent = "copy";
    }, 1500);
  };
  const byHand = () => {
    const area = make("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
    said();
  };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(said, byHand);
  else byHand();
}
function runBody(name, run) {
  const button = make(
    "button",
    { type: "button", "data-key": name, onclick: () => copy(run.command, button) },
    "copy",
  );
  return make(
    "div",
    {},
    make("div", { class: "command" }, make("pre", {}, run.command), button),
    ...run.notes.map(note => make("p", { class: "note" }, `Besides: ${note}.`)),
    make(
      "pre",
      { tabindex: 0, "data-key": name, "aria-label": "Identity card" },
      JSON.stringify(run.card, null, 1),
    ),
  );
}
function drawRuns() {
  const words = at("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = Object.entries(data.runs).filter(([name, run]) => {
    const text = `${name} ${run.title} ${run.command}`.toLowerCase();
    return words.every(word => text.includes(word));
  });
  fill(
    at("runs"),
    ...found.map(([name, run]) => {
      const details = make(
        "details",
        { open: chosen.open.has(name) },
        make(
          "summary",
          { "data-key": name },
          make("span", {}, run.title),
          make(
            "span",
            { class: "muted" },
            run.error === undefined
              ? "under way"
              : `${percent(run.error)} · ${number(Math.round(run.seconds))} s · ${number(run.updates)} updates`,
          ),
          make("code", { class: "muted" }, name),
        ),
      );
      // 500 cards are only written where one looks.
      const open = () => {
        if (details.open && details.children.length === 1) details.append(runBody(name, run));
        details.open ? chosen.open.add(name) : chosen.open.delete(name);
      };
      details.addEventListener("toggle", open);
      if (details.open) open();
      return details;
    }),
    found.length ? null : make("p", { class: "muted" }, "No run has all of these words."),
  );
}
function drawUnderway() {
  const running = Object.entries(data.runs).filter(([, run]) => run.error === undefined);
  at("underway").hidden = !running.length;
  fill(
    at("underway-runs"),
    ...running.map(([, run]) => {
      const silent = data.now ? Math.max(0, data.now - run.time) : 0;
      return make(
        "div",
        { class: "running" },
        make("progress", { max: run.samples, value: run.seen, "aria-label": run.title }),
        make("span", {}, run.title),
        make(
          "span",
          { class: "muted" },
          `${((100 * run.seen) / run.samples).toFixed(0)} %${run.error_so_far === null ? "" : `, error so far ${percent(run.error_so_far)}`}${silent > 60 ? `, silent for ${Math.round(silent / 60)} min: stopped?` : ""}`,
        ),
      );
    }),
  );
}
