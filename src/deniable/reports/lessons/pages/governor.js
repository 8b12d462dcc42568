const drawAlike = mathematics.makeSeeded(1961);
const GIVEN = { F: ["Ada", "Berta", "Carla", "Dora", "Edna", "Flora", "Greta", "Hilda"], M: ["Abel", "Boris", "Cyril", "Dirk", "Egon", "Felix", "Gerd", "Hugo"] };
const FAMILY = ["Marlow", "Tennet", "Osgarth", "Pelling", "Quarne", "Rusk", "Sollow", "Thirkel", "Umber", "Vale", "Wystan", "Yarrow"];
const ILLS = ["fracture", "influenza", "migraine", "asthma", "burn", "appendicitis", "anemia"];
const take = (list) => list[mathematics.pick(list.length, drawAlike)];
function makePerson(born, sex, zip) {
  return { name: `${take(GIVEN[sex])} ${take(FAMILY)}`, born, sex, zip };
}
const chooseDay = () => `${1940 + mathematics.pick(65, drawAlike)}-${String(1 + mathematics.pick(12, drawAlike)).padStart(2, "0")}-${String(1 + mathematics.pick(28, drawAlike)).padStart(2, "0")}`;
const GOVERNOR = { name: "Theodore W. Ashbourne", born: "1961-10-09", sex: "M", zip: "69503" };
const others = Array.from({ length: 394 }, () => makePerson(chooseDay(), take(["F", "M"]), `6950${1 + mathematics.pick(7, drawAlike)}`))
  .filter(({ born }) => born !== GOVERNOR.born);
const sameDay = [["F", "69501"], ["F", "69503"], ["F", "69506"], ["M", "69502"], ["M", "69507"]].map(([sex, zip]) => makePerson(GOVERNOR.born, sex, zip));
const voters = [...others, ...sameDay, GOVERNOR].sort((one, other) => one.name.localeCompare(other.name));
const visits = [...others.slice(0, 120).map((person) => ({ ...person, ill: take(ILLS) })),
  { ...sameDay[1], ill: "migraine" }, { ...sameDay[4], ill: "burn" }, { ...GOVERNOR, ill: "heart failure" }]
  .sort((one, other) => one.born.localeCompare(other.born));

function show() {
  const used = ["birth", "sex", "zip"].filter((name) => find(name).checked);
  const fits = (row) => used.every((name) => (name === "birth" ? row.born === GOVERNOR.born : row[name] === GOVERNOR[name]));
  const [people, found] = [voters.filter(fits), visits.filter(fits)];
  fillTable("voters", people.slice(0, 8).map(({ name, born, sex, zip }) => [name, born, sex, zip]), () => (people.length === 1 ? "marked" : ""));
  fillTable("visits", found.slice(0, 8).map(({ born, sex, zip, ill }) => [born, sex, zip, ill]), () => (found.length === 1 ? "marked" : ""));
  const cut = people.length > 8 || found.length > 8 ? " Eight of each are shown." : "";
  say("told", people.length === 1 && found.length === 1
    ? `One voter and one visit fit. The governor was treated for ${found[0].ill}.`
    : `${people.length} voters and ${found.length} visits fit.${cut}`);
}
for (const name of ["birth", "sex", "zip"]) onChange(name, show);
show();
