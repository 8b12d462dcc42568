// Filters tables by words as they are typed: a row stays when each word is in one of its cells (a single letter must be
// the whole cell), and the numbers of the last column, which is not searched, are added up. Nothing is fetched or sent.
const has = (text, word) => (word.length === 1 ? text === word : text.includes(word));

for (const place of document.querySelectorAll(".search")) {
  const rows = [...place.querySelectorAll("tbody tr")];
  const cells = rows.map((row) => [...row.cells].slice(0, -1).map((cell) => cell.textContent.toLowerCase()));
  const counts = rows.map((row) => Number(row.cells[row.cells.length - 1].textContent.replaceAll(",", "")) || 0);
  const input = place.querySelector("input");
  const told = place.querySelector("output");
  const show = () => {
    const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    let total = 0;
    rows.forEach((row, at) => {
      row.hidden = !wanted.every((word) => cells[at].some((text) => has(text, word)));
      found += row.hidden ? 0 : 1;
      total += row.hidden ? 0 : counts[at];
    });
    told.textContent = `${found.toLocaleString("en")} of ${rows.length.toLocaleString("en")} lines, `
      + `${total.toLocaleString("en")} in all`;
  };
  input.addEventListener("input", show);
  place.classList.add("ready");
  show();
}
