// The mathematics of the lessons: functions that take numbers and give numbers, and touch no page.
// Random numbers come from the browser and are floating point: good enough to teach with, not to protect anybody with.
const mathematics = (() => {
  let next = () => {
    const [high, low] = crypto.getRandomValues(new Uint32Array(2));
    return ((high >>> 5) * 67108864 + (low >>> 6)) / 9007199254740992;
  };

  // A generator with a seed: for tables that every reader sees alike, and for tests.
  function makeSeeded(seed) {
    let state = seed >>> 0;
    return () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
      mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
      return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
    };
  }
  const seed = (number) => { next = makeSeeded(number); };
  const chance = (share) => next() < share;
  const pick = (count, draw = next) => Math.floor(draw() * count);
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const deviation = (values) => {
    const middle = mean(values);
    return Math.sqrt(mean(values.map((value) => (value - middle) ** 2)));
  };

  // Randomized response. `yes` is the chance to say yes when yes is true, `no` when no is true.
  const DESIGNS = {
    coins: { yes: 3 / 4, no: 1 / 4, name: "two coins" },
    envelopes: { yes: 2 / 3, no: 1 / 3, name: "three envelopes" },
    die: { yes: 5 / 6, no: 1 / 6, name: "a die" },
  };
  const epsilonOf = (design) => Math.log(Math.max(design.yes / design.no, (1 - design.no) / (1 - design.yes)));

  // One answer by the rules of the game: what was tossed, drawn or thrown, and what is said.
  function respond(name, truth) {
    if (name === "coins") {
      if (chance(1 / 2)) return { told: "First coin: tails. Tell the truth.", said: truth };
      const heads = chance(1 / 2);
      return { told: `First coin: heads. Second coin: ${heads ? "heads, say yes" : "tails, say no"}.`, said: heads };
    }
    if (name === "envelopes") {
      const drawn = pick(3);
      const words = ["“Say yes.”", "“Say no.”", "“Tell the truth.”"][drawn];
      return { told: `The envelope says: ${words}`, said: drawn === 2 ? truth : drawn === 0 };
    }
    const thrown = 1 + pick(6);
    const rule = thrown === 5 ? "say yes" : thrown === 6 ? "say no" : "tell the truth";
    return { told: `The die shows ${thrown}: ${rule}.`, said: thrown < 5 ? truth : thrown === 5 };
  }
  function askClass(name, people, share) {
    let yes = 0;
    for (let person = 0; person < people; person += 1) yes += respond(name, person < Math.round(share * people)).said;
    return yes;
  }
  // Wilson's interval of 95% for a share, which also holds for small classes.
  function findInterval(yes, people) {
    const z = 1.959964;
    const share = yes / people;
    const middle = (share + (z * z) / (2 * people)) / (1 + (z * z) / people);
    const half = (z / (1 + (z * z) / people))
      * Math.sqrt((share * (1 - share)) / people + (z * z) / (4 * people * people));
    return [middle - half, middle + half];
  }
  // The share of true yes, from the share that was said: a = no + (yes - no) p, solved for p.
  function estimateShare(design, yes, people) {
    const invert = (share) => (share - design.no) / (design.yes - design.no);
    const [low, high] = findInterval(yes, people);
    return { share: invert(yes / people), low: invert(low), high: invert(high) };
  }

  // Laplace noise of a scale, by the inverse of its distribution function.
  function drawLaplace(scale, draw = next) {
    const place = draw() - 0.5;
    return -scale * Math.sign(place) * Math.log1p(-2 * Math.abs(place));
  }
  const laplaceDensity = (x, scale) => Math.exp(-Math.abs(x) / scale) / (2 * scale);
  const boundOfGame = (epsilon) => Math.exp(epsilon) / (1 + Math.exp(epsilon));
  const bestAgainstLaplace = (epsilon) => 1 - Math.exp(-epsilon / 2) / 2;
  // One round: a coin decides whether the person is in the table, which has `rest` others.
  function dealRound(epsilon, rest) {
    const inside = chance(1 / 2);
    return { inside, answer: rest + (inside ? 1 : 0) + drawLaplace(1 / epsilon) };
  }
  function playGames(epsilon, games, rest = 100) {
    let wins = 0;
    for (let game = 0; game < games; game += 1) {
      const { inside, answer } = dealRound(epsilon, rest);
      wins += (answer > rest + 0.5) === inside;
    }
    return wins / games;
  }
  const mostQuestions = (budget, each) => Math.floor(budget / each + 1e-9);

  // Two counts of newspapers: the reader calls the student who left rich when the count fell by more than a half.
  function readNewspapers(epsilon, readers) {
    let right = 0;
    for (let reader = 0; reader < readers; reader += 1) {
      const rich = chance(1 / 2);
      const noise = epsilon === Infinity ? 0 : drawLaplace(1 / epsilon) - drawLaplace(1 / epsilon);
      right += ((rich ? 1 : 0) + noise > 0.5) === rich;
    }
    return right / readers;
  }

  // Rows that look alike in the named columns.
  function groupRows(rows, columns) {
    const groups = new Map();
    for (const row of rows) {
      const key = JSON.stringify(columns.map((column) => row[column]));
      groups.set(key, [...(groups.get(key) ?? []), row]);
    }
    return [...groups.values()];
  }
  const countDistinct = (rows, column) => new Set(rows.map((row) => row[column])).size;
  function measureClasses(rows, columns, sensitive) {
    const classes = groupRows(rows, columns);
    return {
      k: Math.min(...classes.map((each) => each.length)),
      l: Math.min(...classes.map((each) => countDistinct(each, sensitive))),
      classes,
    };
  }

  // Two releases of means: people in order, cut in two classes at one place in the first and another in the second.
  function subtractReleases(values, first, second) {
    const [low, high] = [Math.min(first, second), Math.max(first, second)];
    if (low === high) return null;
    const total = (cut) => mean(values.slice(0, cut)) * cut;
    return { from: low, to: high, mean: (total(high) - total(low)) / (high - low) };
  }

  // A block of three women and two men with whole ages from 0 to 90, each group in order of age.
  const OLDEST = 90;
  function listGroups(size, from = 0) {
    if (size === 0) return [[]];
    const found = [];
    for (let age = from; age <= OLDEST; age += 1) {
      for (const rest of listGroups(size - 1, age)) found.push([age, ...rest]);
    }
    return found;
  }
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const FIGURES = [
    { words: "3 women, mean age 28", of: "women", holds: (women) => sum(women) === 84 },
    { words: "women: median age 36", of: "women", holds: (women) => women[1] === 36 },
    { words: "2 men, mean age 44", of: "men", holds: (men) => sum(men) === 88 },
    { words: "all 5: median age 38", of: "all", holds: (all) => [...all].sort((a, b) => a - b)[2] === 38 },
    {
      words: "4 adults (18 or older), mean age 41", of: "all",
      holds: (all) => all.filter((age) => age >= 18).length === 4 && sum(all.filter((age) => age >= 18)) === 164,
    },
  ];
  // All blocks that fit the first figures: how many, and some of them.
  function solveBlock(printed) {
    const wanted = FIGURES.slice(0, printed);
    const fits = (group, of) => wanted.every((figure) => figure.of !== of || figure.holds(group));
    const women = listGroups(3).filter((group) => fits(group, "women"));
    const men = listGroups(2).filter((group) => fits(group, "men"));
    if (!wanted.some((figure) => figure.of === "all")) return { count: women.length * men.length, blocks: [] };
    const blocks = [];
    for (const one of women) for (const other of men) if (fits([...one, ...other], "all")) blocks.push([one, other]);
    return { count: blocks.length, blocks };
  }
  const checkBlock = (women, men) => {
    const [one, other] = [women, men].map((group) => [...group].sort((a, b) => a - b));
    const held = { women: one, men: other, all: [...one, ...other] };
    return FIGURES.map((figure) => figure.holds(held[figure.of]));
  };

  // Rank of a matrix of whole numbers, exactly: elimination without fractions.
  function findRank(rows) {
    const matrix = rows.map((row) => row.map(BigInt));
    let rank = 0;
    for (let column = 0; column < (matrix[0]?.length ?? 0) && rank < matrix.length; column += 1) {
      const pivot = matrix.findIndex((row, at) => at >= rank && row[column] !== 0n);
      if (pivot < 0) continue;
      [matrix[rank], matrix[pivot]] = [matrix[pivot], matrix[rank]];
      for (let at = rank + 1; at < matrix.length; at += 1) {
        const [head, lead] = [matrix[at][column], matrix[rank][column]];
        matrix[at] = matrix[at].map((cell, place) => cell * lead - matrix[rank][place] * head);
      }
      rank += 1;
    }
    return rank;
  }
  // Whose value follows from sums over these sets: a person's own row must lie in what the questions span.
  function findDetermined(questions, people) {
    const rank = findRank(questions);
    const alone = (person) => Array.from({ length: people }, (_, at) => (at === person ? 1 : 0));
    return Array.from({ length: people }, (_, person) => person)
      .filter((person) => questions.length > 0 && findRank([...questions, alone(person)]) === rank);
  }

  // Ratings that every reader sees alike: few films are seen by everybody, most by few.
  const STARS = [1, 2, 3, 3, 3, 4, 4, 4, 5, 5];
  function makeRatings(viewers, films, draw) {
    const weights = Array.from({ length: films }, (_, rank) => 1 / (rank + 4));
    const total = sum(weights);
    const chooseFilm = () => {
      let left = draw() * total;
      return Math.max(0, weights.findIndex((weight) => (left -= weight) < 0));
    };
    return Array.from({ length: viewers }, () => {
      const seen = new Map();
      for (let left = 12 + pick(20, draw); left > 0; left -= 1) {
        seen.set(chooseFilm(), { stars: STARS[pick(STARS.length, draw)], day: pick(365, draw) });
      }
      return seen;
    });
  }
  // What an acquaintance knows of a viewer: some ratings, the last of them wrong; days at most `days` off, null if unknown.
  function learnRatings(viewer, { known, wrong, days, rare }, draw) {
    const order = [...viewer].filter(([film]) => !rare || film >= 20).map((entry) => [draw(), entry]);
    const chosen = order.sort((a, b) => a[0] - b[0]).slice(0, known).map(([, entry]) => entry);
    return chosen.map(([film, { stars, day }], at) => ({
      film,
      stars: at < wrong ? 1 + (stars % 5) : stars,
      day: days === null ? null : day + Math.round((2 * draw() - 1) * days),
    }));
  }
  const matchViewer = (viewer, clues, days) => clues.filter(({ film, stars, day }) => {
    const found = viewer.get(film);
    return found && found.stars === stars && (day === null || Math.abs(found.day - day) <= days);
  }).length;
  const findViewers = (viewers, clues, { wrong, days }) => viewers.map((_, at) => at)
    .filter((at) => matchViewer(viewers[at], clues, days) >= clues.length - wrong);
  function countFound(viewers, knowledge, draw) {
    let [found, tried] = [0, 0];
    for (const viewer of viewers) {
      const clues = learnRatings(viewer, knowledge, draw);
      if (clues.length < knowledge.known) continue;
      const fit = findViewers(viewers, clues, knowledge);
      tried += 1;
      found += fit.length === 1 && viewers[fit[0]] === viewer;
    }
    return { found, tried };
  }

  // Synthetic rows: noise on every count, nothing below zero, then rows drawn by the counts that are left.
  const addNoise = (counts, epsilon) => counts.map((count) => Math.max(0, count + drawLaplace(1 / epsilon)));
  function drawRows(weights, rows) {
    const total = sum(weights) || 1;
    const counts = weights.map(() => 0);
    for (let row = 0; row < rows; row += 1) {
      let left = next() * total;
      const found = weights.findIndex((weight) => (left -= weight) < 0);
      counts[found < 0 ? 0 : found] += 1;
    }
    return counts;
  }
  const totalVariation = (one, other) => {
    const [a, b] = [sum(one) || 1, sum(other) || 1];
    return sum(one.map((count, at) => Math.abs(count / a - other[at] / b))) / 2;
  };

  // Local against central: the standard deviation of an estimated count of people.
  const centralError = (epsilon) => Math.SQRT2 / epsilon;
  const localError = (epsilon, people) => {
    const truth = boundOfGame(epsilon);
    return Math.sqrt(people * truth * (1 - truth)) / (2 * truth - 1);
  };
  function countLocally(epsilon, people, yes) {
    const truth = boundOfGame(epsilon);
    let said = 0;
    for (let person = 0; person < people; person += 1) said += chance(truth) === person < yes;
    return (said - people * (1 - truth)) / (2 * truth - 1);
  }
  const countCentrally = (epsilon, yes) => yes + drawLaplace(1 / epsilon);

  return {
    seed, makeSeeded, chance, pick, mean, deviation, sum, DESIGNS, epsilonOf, respond, askClass, findInterval,
    estimateShare, drawLaplace, laplaceDensity, boundOfGame, bestAgainstLaplace, dealRound, playGames, mostQuestions,
    readNewspapers, groupRows, countDistinct, measureClasses, subtractReleases, FIGURES, solveBlock, checkBlock,
    findRank, findDetermined, makeRatings, learnRatings, matchViewer, findViewers, countFound, addNoise, drawRows,
    totalVariation, centralError, localError, countLocally, countCentrally,
  };
})();
