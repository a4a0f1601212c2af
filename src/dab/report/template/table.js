// The table

const rowOf = id => data.streams.flatMap(stream => stream.rows).find(row => row.id === id);
function cellOf(row) {
  if (!row) return make("td");
  if (row.error === undefined) return make("td", { class: "muted" }, "under way");
  const words = [row.error.toFixed(1)];
  if (row.deviation !== null)
    words.push(make("span", { class: "pm" }, ` ± ${row.deviation.toFixed(1)}`));
  if (row.worse) words.push(" ↑");
  return make(
    "td",
    {
      class: [row.best && "best", row.worse && "worse"].filter(Boolean).join(" ") || null,
      title: `seed${row.seeds.length > 1 ? "s" : ""} ${row.seeds.join(", ")}; source ${row.source_error.toFixed(1)}`,
    },
    ...words,
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
      value: line => line.name,
      cell: line => {
        const row = rowsOf(line)[0];
        const options = line.name.slice(line.method.length).trim();
        return make(
          "th",
          { scope: "row" },
          named(row, line.method),
          options ? make("span", { class: "options" }, ` ${options}`) : null,
        );
      },
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
      value: line => row(line)?.error ?? null,
      cell: line => cellOf(row(line)),
    });
    if (column.published)
      columns.push({
        key: `published ${column.stream}`,
        title: "published",
        value: line => row(line)?.published?.[0] ?? null,
        cell: line => {
          const figure = row(line)?.published;
          return make(
            "td",
            { class: "muted", title: figure ? `from the ${figure[1]}` : null },
            figure ? `${figure[0].toFixed(1)}${figure[1] === "paper" ? "" : "*"}` : "",
          );
        },
      });
  }
  columns.push(
    {
      title: "updates",
      value: line => rowsOf(line)[0]?.update_rate ?? null,
      cell: line =>
        make(
          "td",
          { title: "share of the calls that updated" },
          joined(line, row =>
            row.update_rate === undefined ? "" : `${Math.round(100 * row.update_rate)} %`,
          ),
        ),
    },
    {
      title: "cost",
      value: line => rowsOf(line)[0]?.cost ?? null,
      cell: line =>
        make(
          "td",
          { title: "processor time in multiples of a plain forward" },
          joined(line, row => (row.cost ? `${row.cost.toFixed(1)} ×` : "")),
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
      const star = table.lines.some(line =>
        Object.values(line.rows).some(id => {
          const f = rowOf(id).published;
          return f && f[1] !== "paper";
        }),
      );
      return make(
        "div",
        { class: "setting" },
        make("h3", {}, table.setting),
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
        star
          ? make("p", { class: "note" }, "*: not in the paper, from its authors' benchmark.")
          : null,
      );
    }),
  );
}
