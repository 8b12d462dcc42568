const PEOPLE = [[23, "4010", "flu"], [27, "4012", "asthma"], [29, "4012", "flu"], [31, "4051", "diabetes"], [34, "4053", "diabetes"],
  [38, "4058", "diabetes"], [42, "4010", "asthma"], [44, "4015", "flu"], [49, "4012", "burn"], [51, "4057", "flu"], [55, "4051", "burn"],
  [58, "4059", "asthma"]];
function hideAge(age, width) {
  if (width === 100) return "*";
  const from = Math.floor(age / width) * width;
  return width === 1 ? String(age) : `${from} to ${from + width - 1}`;
}
function show() {
  const [width, digits] = [Number(find("age").value), Number(find("code").value)];
  const rows = PEOPLE.map(([age, code, ill]) => ({ age: hideAge(age, width), code: digits ? code.slice(0, digits).padEnd(4, "*") : "*", ill }));
  const { k, l, classes } = mathematics.measureClasses(rows, ["age", "code"], "ill");
  const alike = classes.filter((each) => mathematics.countDistinct(each, "ill") === 1);
  const listed = classes.flatMap((each, at) => each.map((row, place) => ({ row, at, first: place === 0, same: alike.includes(each) })));
  fillTable("rows", listed.map(({ row, at }) => [row.age, row.code, row.ill, at + 1]), (_, at) => {
    const { first, same } = listed[at];
    return [first ? "first" : "", same ? "marked" : ""].filter(Boolean).join(" ");
  });
  const exposed = alike.flat().length;
  say("told", `k = ${k}, l = ${l}, ${classes.length} classes. ${exposed ? `For ${exposed} of 12 people the neighbor knows the illness for certain.`
    : "No illness is certain."}`);
}
for (const name of ["age", "code"]) onChange(name, show);
show();
