// The table

function cellOf(row) {
  if (!row) return make("td");
  if (!row.scores) return make("td", { class: "muted" }, "in progress");
  const { error, deviation, rank, worse, seeds, source_error: source } = row.scores;
  return make(
    "td",
    {
      class: [rank === 1 && "best", worse && "worse"].filter(Boolean).join(" ") || null,
      title: `seed${seeds.length > 1 ? "s" : ""} ${seeds.join(", ")}; source ${fixed(source)}`,
    },
    fixed(error),
    deviation === null ? null : make("span", { class: "pm" }, ` ± ${fixed(deviation)}`),
    worse ? " ↑" : null,
  );
}
function columnsOf(table) {
  const rowsOf = line =>
    table.columns
      .map(column => line.rows[column.stream])
      .filter(Boolean)
      .map(rowOf);
  const joined = (line, text) => rowsOf(line).map(text).filter(Boolean).join(" / ");
  const columns = [
    {
      title: "method",
      value: line => `${line.title} ${line.options}`,
      cell: line =>
        make(
          "th",
          { scope: "row" },
          named(rowsOf(line)[0], line.title),
          line.options ? make("span", { class: "options" }, ` ${line.options}`) : null,
        ),
    },
    {
      title: "M",
      value: line => line.capacity,
      cell: line => make("td", {}, line.capacity === null ? "" : `${line.capacity}`),
    },
  ];
  for (const column of table.columns) {
    const row = line => line.rows[column.stream] && rowOf(line.rows[column.stream]);
    columns.push({
      key: `error ${column.stream}`,
      title: column.title,
      detail: column.detail,
      value: line => row(line)?.scores?.error ?? null,
      cell: line => cellOf(row(line)),
    });
    if (column.published)
      columns.push({
        key: `published ${column.stream}`,
        title: "published",
        value: line => row(line)?.scores?.published?.error ?? null,
        cell: line => {
          const found = row(line)?.scores?.published;
          return make(
            "td",
            { class: "muted", title: found ? `from the ${found.source}` : null },
            found ? found.text : "",
          );
        },
      });
  }
  columns.push(
    {
      title: "updates",
      value: line => rowsOf(line)[0]?.scores?.update_rate ?? null,
      cell: line =>
        make(
          "td",
          { title: "share of the calls that updated" },
          joined(line, row => row.scores && `${Math.round(row.scores.update_rate)} %`),
        ),
    },
    {
      title: "cost",
      value: line => rowsOf(line)[0]?.scores?.cost ?? null,
      cell: line =>
        make(
          "td",
          { title: "CPU time in multiples of a plain forward" },
          joined(line, row => row.scores?.cost && `${fixed(row.scores.cost)} ×`),
        ),
    },
  );
  return columns.map(column => ({ key: column.title, ...column }));
}
function drawTables() {
  fill(
    at("tables"),
    ...data.tables.map(table => {
      const columns = columnsOf(table),
        sort = chosen.sort.get(table.setting),
        by = columns.find(column => column.key === sort?.key);
      const lines = [...table.lines];
      if (by)
        lines.sort((a, b) => {
          const [u, v] = [a, b].map(by.value);
          if (u === null || v === null) return (u === null) - (v === null);
          return sort.way * (typeof u === "string" ? u.localeCompare(v) : u - v);
        });
      const head = columns.map(column =>
        make(
          "th",
          {
            scope: "col",
            "aria-sort": column === by ? (sort.way > 0 ? "ascending" : "descending") : null,
          },
          make(
            "button",
            {
              type: "button",
              "data-key": `${table.setting} ${column.key}`,
              onclick: () => {
                chosen.sort.set(table.setting, {
                  key: column.key,
                  way: column === by ? -sort.way : 1,
                });
                drawTables();
              },
            },
            column.title,
          ),
          column.detail ? make("small", {}, column.detail) : null,
        ),
      );
      return make(
        "div",
        { class: "setting" },
        make("h3", {}, table.setting),
        make("p", { class: "note" }, table.caption),
        make(
          "div",
          {
            class: "scroll",
            tabindex: 0,
            role: "region",
            "aria-label": `Errors, ${table.setting}`,
          },
          make(
            "table",
            {},
            make("thead", {}, make("tr", {}, ...head)),
            make(
              "tbody",
              {},
              ...lines.map(line => make("tr", {}, ...columns.map(column => column.cell(line)))),
            ),
          ),
        ),
        table.note ? make("p", { class: "note" }, table.note) : null,
      );
    }),
    download(data.csv, `${data.title}.csv`, "Download CSV"),
  );
}
