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
    ...run.notes.map(note => make("p", { class: "note" }, `Note: ${note}.`)),
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
            run.outcome
              ? `${percent(run.outcome.error)} · ${number(Math.round(run.outcome.seconds))} s · ${number(run.outcome.updates)} updates`
              : "in progress",
          ),
          make("code", { class: "muted" }, name),
        ),
      );
      // There may be hundreds of cards: each is drawn when it is opened.
      const open = () => {
        if (details.open && details.children.length === 1) details.append(runBody(name, run));
        details.open ? chosen.open.add(name) : chosen.open.delete(name);
      };
      details.addEventListener("toggle", open);
      if (details.open) open();
      return details;
    }),
    found.length ? null : make("p", { class: "muted" }, "No run contains all of these words."),
  );
}
function drawProgress() {
  const running = Object.values(data.runs).filter(run => run.state);
  at("progress").hidden = !running.length;
  fill(
    at("progress-runs"),
    ...running.map(({ title, state }) =>
      make(
        "div",
        { class: "running" },
        make("progress", { max: state.samples, value: state.seen, "aria-label": title }),
        make("span", {}, title),
        make(
          "span",
          { class: "muted" },
          [
            `${state.share.toFixed(0)} %`,
            state.error === null ? null : `error so far ${percent(state.error)}`,
            state.silent ? `no news for ${state.silent} min: stopped?` : null,
          ]
            .filter(Boolean)
            .join(", "),
        ),
      ),
    ),
  );
}
