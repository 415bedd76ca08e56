// Sorts a table by the buttons in its head, and filters it by the fields above it. The page is
// complete without this script: it has every row, in the order of the files.
"use strict";

const text = (cell) => cell.textContent.trim();
const number = (cell) => parseFloat(text(cell).replaceAll(",", ""));
const natural = new Intl.Collator("en", { numeric: true });

function sort(table, column) {
  const heads = [...table.tHead.rows[0].cells];
  const head = heads[column];
  const down = head.getAttribute("aria-sort") === "ascending";
  heads.forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const numeric = head.classList.contains("n");
  const rows = [...table.tBodies[0].rows].map((row) => ({ row, cell: row.cells[column] }));
  rows.sort((a, b) => {
    const missing = (text(a.cell) === "") - (text(b.cell) === "");
    if (missing) return missing; // what is missing stands last, whichever way
    const order = numeric
      ? number(a.cell) - number(b.cell)
      : natural.compare(text(a.cell), text(b.cell));
    return down ? -order : order;
  });
  table.tBodies[0].append(...rows.map((one) => one.row));
}

function filter(section) {
  const table = section.querySelector("table");
  const words = section.querySelector("input").value.toLowerCase().split(/\s+/).filter(Boolean);
  const chosen = [...section.querySelectorAll("select")]
    .filter((field) => field.value !== "")
    .map((field) => [Number(field.dataset.column), field.value]);
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    const whole = row.textContent.toLowerCase();
    row.hidden =
      !words.every((word) => whole.includes(word)) ||
      !chosen.every(([column, value]) => text(row.cells[column]) === value);
    shown += !row.hidden;
  }
  section.querySelector("output").value = `${shown} of ${table.tBodies[0].rows.length} rows`;
}

for (const section of document.querySelectorAll(".listing")) {
  const table = section.querySelector("table");
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => sort(table, column));
  });
  section.querySelector(".filters").hidden = false;
  section.addEventListener("input", () => filter(section));
  filter(section);
}
