let round;
let [games, wins] = [0, 0];
const reached = [];
const promised = bindSlider("epsilon", restart, (value) => value.toFixed(1), (place) => place / 10);
const spent = () => promised() * (find("broken").checked ? 3 : 1);

function deal() {
  round = mathematics.dealRound(spent(), 100);
  say("answer", round.answer.toFixed(2));
}
function guess(inside) {
  const right = inside === round.inside;
  games += 1;
  wins += right;
  say("told", `${right ? "Right" : "Wrong"}: Eve was ${round.inside ? "" : "not "}in. You won ${wins} of ${games} games `
    + `(${percent(wins / games)}). The promise allows ${percent(mathematics.boundOfGame(promised()), 1)} in the long run.`);
  deal();
}
function playBest() {
  const share = mathematics.playGames(spent(), 2000);
  const bound = mathematics.boundOfGame(promised());
  const [low] = mathematics.findInterval(share * 2000, 2000);
  reached.push([promised(), share]);
  say("told", `The best attacker won ${percent(share, 1)} of 2,000 games; the promise allows ${percent(bound, 1)}. `
    + (low > bound ? "The promise is refuted." : "Nothing was found against the promise."));
  show();
}
function show() {
  const all = Array.from({ length: 60 }, (_, at) => 0.05 + at * 0.0508);
  drawChart("chart", {
    alt: `Share of games won against epsilon: the bound, the best attacker against true Laplace noise, and ${reached.length} tries`,
    x: { label: "epsilon that is promised", min: 0, max: 3.1 },
    y: { label: "share of games won", min: 0.45, max: 1, form: (value) => percent(value) },
    layers: [{ kind: "line", name: "bound", color: 2, values: all.map((each) => [each, mathematics.boundOfGame(each)]) },
      { kind: "line", name: "best against Laplace noise", color: 3, values: all.map((each) => [each, mathematics.bestAgainstLaplace(each)]) },
      { kind: "points", name: "2,000 games", color: 1, values: reached },
      { kind: "rule", name: "a coin", color: 4, y: 0.5 }],
  });
}
function restart() {
  [games, wins] = [0, 0];
  say("told", "Look at the count, then say whether Eve is in.");
  deal();
}
onClick("with", () => guess(true));
onClick("without", () => guess(false));
onClick("best", playBest);
onChange("broken", restart);
restart();
show();
