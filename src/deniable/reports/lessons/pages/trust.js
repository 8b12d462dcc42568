const people = bindSlider("people", clear, (value) => value.toLocaleString("en"), (place) => Math.round(10 ** (place / 10)));
const epsilon = bindSlider("epsilon", clear, (value) => value.toFixed(2), (place) => 10 ** (place / 10));

function ask() {
  const yes = Math.round(people() / 5);
  const found = [mathematics.countCentrally(epsilon(), yes), mathematics.countLocally(epsilon(), people(), yes)];
  const [central, local] = found.map((value) => Math.round(value).toLocaleString("en"));
  say("told", `The truth is ${yes.toLocaleString("en")}. Central: ${central}. Local: ${local}.`);
  drawChart("bars", {
    alt: `Truth ${yes}, central ${central}, local ${local}`, most: Math.max(...found, yes, 1), form: (value) => Math.round(value).toLocaleString("en"),
    bars: [{ label: "Truth", value: yes, color: 3 }, { label: "Central", value: found[0], color: 1 }, { label: "Local", value: found[1], color: 2 }],
  });
}
function clear() {
  say("told", `Typical error: central ${mathematics.centralError(epsilon()).toFixed(1)} people, local ${mathematics.localError(epsilon(), people()).toFixed(1)} people.`);
  eraseChart("bars");
  const sizes = Array.from({ length: 41 }, (_, at) => 10 ** (1 + at / 10));
  drawChart("chart", {
    alt: "Typical error of a share against the number of people: central falls ten times where local falls three times",
    x: { label: "people", min: 10, max: 100000, log: true, ticks: [10, 1000, 100000] },
    y: { label: "typical error of the share", min: 1e-5, max: 10, log: true, ticks: [1e-4, 1e-2, 1], form: (value) => `${+(100 * value).toPrecision(1)}%` },
    layers: [{ kind: "line", name: "local", color: 2, values: sizes.map((size) => [size, mathematics.localError(epsilon(), size) / size]) },
      { kind: "line", name: "central", color: 1, values: sizes.map((size) => [size, mathematics.centralError(epsilon()) / size]) },
      { kind: "rule", name: "people chosen", color: 4, x: people() }],
  });
}
onClick("ask", ask);
clear();
