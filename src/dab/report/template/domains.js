// Error by domain

function drawDomains() {
  const stream = current(),
    rows = finished(stream);
  at("domains-note").textContent =
    "In %, in the order of the stream." +
    (rows.some(row => row.scores.differences && !row.is_source)
      ? " Blue: better than the source model on this domain; red: worse."
      : "");
  const head = make(
    "tr",
    {},
    make("th", { scope: "col" }, "method"),
    make("th", { scope: "col" }, "mean"),
    ...stream.short.map((name, i) => make("th", { scope: "col", title: stream.domains[i] }, name)),
  );
  const cell = (row, error, difference) => {
    if (error === undefined) return make("td");
    const d = difference ?? 0,
      strength = Math.min(1, Math.abs(d) / 25) * 0.5;
    const against =
      difference === undefined || row.is_source ? "" : `, ${signed(d)} to the source model`;
    return make(
      "td",
      {
        style:
          Math.abs(d) < 0.05
            ? null
            : `background: rgb(var(--${d < 0 ? "better" : "worse"}-rgb) / ${strength.toFixed(2)})`,
        title: `${row.label.short}: ${fixed(error)} %${against}`,
      },
      fixed(error),
    );
  };
  fill(
    at("domains"),
    make(
      "table",
      { class: "heat" },
      make("thead", {}, head),
      make(
        "tbody",
        {},
        ...rows.map(row =>
          make(
            "tr",
            {},
            make(
              "th",
              { scope: "row" },
              named(row, row.label.title),
              make("span", { class: "options" }, row.label.short.slice(row.label.title.length)),
            ),
            cell(row, row.scores.error, row.scores.differences ? row.scores.difference : undefined),
            ...stream.domains.map(domain =>
              cell(row, row.scores.errors[domain], row.scores.differences?.[domain]),
            ),
          ),
        ),
      ),
    ),
  );
}
