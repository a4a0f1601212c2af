// Error by domain

function drawDomains() {
  const stream = current();
  const rows = stream.rows.filter(row => row.errors),
    source = rows.find(row => row.is_source);
  at("domains-note").textContent = source
    ? "In %, as the domains follow each other. Blue: better than the source model on this domain; red: worse."
    : "In %, as the domains follow each other.";
  const head = make(
    "tr",
    {},
    make("th", { scope: "col" }, "method"),
    make("th", { scope: "col" }, "mean"),
    ...stream.short.map((name, i) => make("th", { scope: "col", title: stream.domains[i] }, name)),
  );
  const cell = (row, error, ours) => {
    if (error === undefined) return make("td");
    const d = ours === undefined ? 0 : error - ours;
    const strength = Math.min(1, Math.abs(d) / 25) * 0.5;
    return make(
      "td",
      {
        style:
          Math.abs(d) < 0.05
            ? null
            : `background: rgb(var(--${d < 0 ? "better" : "worse"}-rgb) / ${strength.toFixed(2)})`,
        title: `${row.label}: ${error.toFixed(1)} %${source && row !== source ? `, ${d > 0 ? "+" : ""}${d.toFixed(1)} to source` : ""}`,
      },
      error.toFixed(1),
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
              named(row, row.method),
              make("span", { class: "options" }, row.label.slice(row.method.length)),
            ),
            cell(row, row.error, source?.error),
            ...stream.domains.map(domain => cell(row, row.errors[domain], source?.errors[domain])),
          ),
        ),
      ),
    ),
  );
}
