// Tables that are sorted by a click on a heading, and texts that are copied by a button.

// A text of somebody else: characters that hide letters or turn their order are written out, as the server does.
export function reveal(text) {
  return text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, (sign) => (/[\n\r\t\u200c\u200d]/.test(sign) ? sign : `\\u${sign.codePointAt(0).toString(16).padStart(4, "0")}`));
}

export function improve(root) {
  for (const table of root.querySelectorAll("table.sortable")) sortable(table);
  for (const box of root.querySelectorAll(".copied")) copyable(box);
}

function sortable(table) {
  if (table.dataset.ready) return;
  table.dataset.ready = "yes";
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sort(table, heads, place));
    head.replaceChildren(button);
  });
}

function sort(table, heads, place) {
  const down = heads[place].getAttribute("aria-sort") === "ascending";
  for (const head of heads) head.removeAttribute("aria-sort");
  heads[place].setAttribute("aria-sort", down ? "descending" : "ascending");
  const value = (row) => row.cells[place].dataset.sort ?? row.cells[place].textContent;
  const rows = [...table.tBodies[0].rows].sort((one, two) => compare(value(one), value(two)) * (down ? -1 : 1));
  table.tBodies[0].append(...rows);
}

function compare(one, two) {
  const numbers = one !== "" && two !== "" && !Number.isNaN(Number(one)) && !Number.isNaN(Number(two));
  return numbers ? Number(one) - Number(two) : one.localeCompare(two);
}

function copyable(box) {
  if (!navigator.clipboard || box.dataset.ready) return;
  box.dataset.ready = "yes";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "plain copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(box.querySelector("pre").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  box.append(button);
}

improve(document);
