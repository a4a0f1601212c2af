// What the report says in words: the opening, the glossary, problems, the comparison

const OPENINGS = 3; // shown at once; more are folded

function drawWords() {
  const paragraph = stream => make("p", { class: "lead" }, stream.opening);
  const more = data.streams.slice(OPENINGS);
  fill(
    at("opening"),
    ...data.streams.slice(0, OPENINGS).map(paragraph),
    more.length
      ? make(
          "details",
          {},
          make("summary", {}, `${more.length} more streams`),
          make("div", {}, ...more.map(paragraph)),
        )
      : null,
  );
  fill(
    at("terms"),
    ...data.glossary.flatMap(term => [make("dt", {}, term.word), make("dd", {}, term.meaning)]),
  );
  at("problems").hidden = !data.problems.length;
  fill(
    at("problems-list"),
    ...data.problems.map(problem =>
      make("li", {}, make("code", {}, problem.run), ` ${problem.reason}`),
    ),
  );
}

function drawComparison() {
  const found = data.comparison;
  at("comparison").hidden = !found;
  if (!found) return;
  at("comparison-title").textContent = `Compared with ${found.other}`;
  const only = (names, where) =>
    names.length
      ? make(
          "details",
          {},
          make("summary", {}, `Only in ${where}: ${names.length} row${names.length > 1 ? "s" : ""}`),
          make("div", {}, make("ul", {}, ...names.map(name => make("li", {}, name)))),
        )
      : null;
  const line = row =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, named(rowOf(row.row), row.label)),
      make("td", {}, row.stream),
      make("td", {}, fixed(row.error)),
      make("td", {}, fixed(row.other_error)),
      make(
        "td",
        { class: row.worse ? "worse" : null },
        signed(row.difference),
        row.deviation === null
          ? null
          : make("span", { class: "pm" }, ` ± ${fixed(row.deviation)}`),
      ),
      make("td", {}, `${row.seeds.length}`),
      make("td", { class: "muted" }, row.identical ? "identical" : "differ"),
    );
  const heads = ["method", "stream", "this folder", "the other", "difference", "seeds", "predictions"];
  fill(
    at("comparison-rows"),
    found.rows.length
      ? make(
          "div",
          {
            class: "scroll",
            tabindex: 0,
            role: "region",
            "aria-labelledby": "comparison-title",
          },
          make(
            "table",
            {},
            make(
              "thead",
              {},
              make("tr", {}, ...heads.map(head => make("th", { scope: "col" }, head))),
            ),
            make("tbody", {}, ...found.rows.map(line)),
          ),
        )
      : make("p", {}, "The two folders have no row in common."),
    found.rows.length ? download(found.csv, "comparison.csv", "Download CSV") : null,
    only(found.only_here, data.title),
    only(found.only_there, found.other),
  );
}
