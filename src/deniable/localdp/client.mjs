// Client file for answering a deniable survey from a browser (or Node): one file, no dependencies, copy it anywhere.
//
// The answer is randomized here, with the platform's cryptographic entropy, before anything is sent. The server is not
// trusted: epsilon is computed from the recipe that is run, the limits are this device's own, a link pins the survey it
// was made for, and a ticket cannot be traced to the invitation it was given for. A recipe carries exact integer
// probabilities, so nothing here rounds. The same algorithms, in the same order of draws, are in client.py; both pass
// the same test vectors.
//
// All integers stay below 2^53, where a JavaScript number is exact. Products that could pass it use BigInt.

export const FORMAT = 2;
const GRID = 65536;
export const ALLOWANCE = 10; // the epsilon that a device tells in a month of its own calendar
export const MOST_ANSWERS = 12; // how often a device answers one question
const MOST_DRAWN = 1024; // up to so many possible answers, the responses to all of them are drawn beforehand
const NO_ANSWER = "no answer"; // the option that stands for a question left out, where that is randomized too

/** Bytes of the platform's entropy. */
export function systemBytes(count) {
  const bytes = new Uint8Array(count);
  crypto.getRandomValues(bytes);
  return bytes;
}

/** A draw of uniform integers below a bound: big-endian bytes, drawn again while in the uneven rest. */
export function drawFrom(take = systemBytes) {
  return (bound) => {
    if (!Number.isSafeInteger(bound) || bound < 1) throw new Refused("a bound is not an exact integer");
    let width = 0;
    for (let rest = bound - 1; rest > 0; rest = Math.floor(rest / 256)) width += 1;
    const big = BigInt(bound);
    const whole = 256n ** BigInt(width);
    const fair = whole - (whole % big);
    for (;;) {
      let number = 0n;
      for (const byte of take(width)) number = number * 256n + BigInt(byte);
      if (number < fair) return Number(number % big);
    }
  };
}

/** The client will not answer: its limits are used up, or the answer does not fit the question. */
export class Refused extends Error {}

function coins(recipe, answer, draw) {
  const word = recipe.instructions[draw(recipe.instructions.length)];
  return [{ yes: 1, no: 0, truth: answer, opposite: 1 - answer }[word]];
}

function kAry(recipe, answer, draw, domain = recipe.domain) {
  const [numerator, denominator] = recipe.odds;
  const drawn = draw(numerator + (domain - 1) * denominator);
  if (drawn < numerator) return [answer];
  const other = Math.floor((drawn - numerator) / denominator);
  return [other + (other >= answer ? 1 : 0)];
}

function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function bits(length, one) {
  const packed = new Uint8Array(Math.floor((length + 7) / 8));
  for (let place = 0; place < length; place += 1) if (one(place)) packed[place >> 3] |= 1 << (place & 7);
  return hex(packed);
}

function unary(recipe, answer, draw) {
  return [bits(recipe.domain, (at) => draw(GRID) < (at === answer ? recipe.keep : recipe.flip))];
}

/** The 32-bit hash of local hashing. */
export function hash32(value, seed) {
  let word = Math.imul(value, 0x9e3779b1) ^ seed;
  for (const [shift, factor] of [[17, 0xed5ad4bb], [11, 0xac4c1b51], [15, 0x31848bab]]) {
    word = Math.imul(word ^ (word >>> shift), factor);
  }
  return (word ^ (word >>> 14)) >>> 0;
}

function hashing(recipe, answer, draw) {
  const seed = draw(4294967296);
  const bucket = Math.floor((hash32(answer, seed) * recipe.buckets) / 4294967296);
  return [seed, ...kAry(recipe, bucket, draw, recipe.buckets)];
}

function odd(number) {
  let parity = 0;
  for (let rest = number; rest; rest &= rest - 1) parity ^= 1;
  return parity;
}

function hadamard(recipe, answer, draw) {
  const [numerator, denominator] = recipe.odds;
  const rows = Math.ceil(recipe.domain / recipe.blocks);
  const order = 2 ** (32 - Math.clz32(rows));
  const outside = 2 * recipe.blocks - 1;
  const inside = draw(numerator + outside * denominator) < numerator;
  const column = draw(order);
  const elsewhere = draw(outside);
  const block = Math.floor(answer / rows);
  const row = (answer % rows) + 1;
  if (!inside && elsewhere > 0) {
    const other = Math.floor((elsewhere - 1) / 2);
    return [(other + (other >= block ? 1 : 0)) * order + column];
  }
  const minus = odd(column & row) === 1;
  return [block * order + (minus === inside ? column ^ (row & -row) : column)];
}

function subset(recipe, answer, draw) {
  const [numerator, denominator] = recipe.odds;
  const { count, domain } = recipe;
  const holds = draw(count * numerator + (domain - count) * denominator) < count * numerator;
  const others = Array.from({ length: domain }, (_, other) => other).filter((other) => other !== answer);
  for (let place = 0; place < Math.min(count, domain - 2); place += 1) {
    const drawn = place + draw(domain - 1 - place);
    [others[place], others[drawn]] = [others[drawn], others[place]];
  }
  const chosen = holds ? [...others.slice(0, count - 1), answer] : others.slice(0, count);
  return [chosen.sort((left, right) => left - right)];
}

// SHA-256 (FIPS 180-4). crypto.subtle would do, but only on secure origins and only asynchronously.
const ROUND = [];
const START = [];
for (let candidate = 2; ROUND.length < 64; candidate += 1) {
  let prime = true;
  for (let divisor = 2; divisor * divisor <= candidate; divisor += 1) if (candidate % divisor === 0) prime = false;
  if (!prime) continue;
  if (START.length < 8) START.push(fractional(Math.sqrt(candidate)));
  ROUND.push(fractional(Math.cbrt(candidate)));
}

function fractional(root) {
  return ((root - Math.floor(root)) * 4294967296) >>> 0;
}

const turn = (word, by) => (word >>> by) | (word << (32 - by));

/** The SHA-256 digest of bytes. */
export function sha256(message) {
  const length = message.length;
  const padded = new Uint8Array((((length + 8) >> 6) + 1) << 6);
  padded.set(message);
  padded[length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 4, length * 8);
  const state = START.slice();
  const words = new Int32Array(64);
  for (let at = 0; at < padded.length; at += 64) compress(state, words, view, at);
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, index) => digest.setUint32(index * 4, word));
  return new Uint8Array(digest.buffer);
}

function compress(state, words, view, at) {
  for (let i = 0; i < 16; i += 1) words[i] = view.getInt32(at + i * 4);
  for (let i = 16; i < 64; i += 1) {
    const [early, late] = [words[i - 15], words[i - 2]];
    const first = turn(early, 7) ^ turn(early, 18) ^ (early >>> 3);
    const second = turn(late, 17) ^ turn(late, 19) ^ (late >>> 10);
    words[i] = words[i - 16] + first + words[i - 7] + second;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let i = 0; i < 64; i += 1) {
    const choice = (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g));
    const one = (h + choice + ROUND[i] + words[i]) | 0;
    const two = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((word, index) => { state[index] = (state[index] + word) >>> 0; });
}

/** Where a function of the SHA-256 family sends a string. */
export function position(string, method, width) {
  const text = new TextEncoder().encode(string);
  const message = new Uint8Array(4 + text.length);
  new DataView(message.buffer).setUint32(0, Math.floor(method / 16), true);
  message.set(text, 4);
  return new DataView(sha256(message).buffer).getUint16((method % 16) * 2, true) % width;
}

function rappor(recipe, answer, draw) {
  const cohort = draw(recipe.cohorts);
  const set = new Set();
  for (let i = 0; i < recipe.hashes; i += 1) set.add(position(answer, cohort * recipe.hashes + i, recipe.width));
  return [cohort, bits(recipe.width, (at) => (draw(GRID) < recipe.flip) !== set.has(at))];
}

/** A fresh report from a remembered permanent RAPPOR response. */
export function rapporReport(recipe, permanent, draw = drawFrom()) {
  const lasting = (at) => (parseInt(permanent[1].substr((at >> 3) * 2, 2), 16) >> (at & 7)) & 1;
  return [permanent[0], bits(recipe.width, (at) => draw(GRID) < (lasting(at) ? recipe.one : recipe.zero))];
}

function sketch(recipe, answer, draw) {
  const method = draw(recipe.hashes);
  const place = position(answer, method, recipe.width);
  return [method, bits(recipe.width, (at) => (draw(GRID) < recipe.flip) !== (at === place))];
}

function hadamardSketch(recipe, answer, draw) {
  const method = draw(recipe.hashes);
  const coefficient = draw(recipe.width);
  const minus = odd(coefficient & position(answer, method, recipe.width));
  const [numerator, denominator] = recipe.odds;
  return [method, coefficient, minus ^ (draw(numerator + denominator) >= numerator ? 1 : 0)];
}

function prefixTree(recipe, answer, draw) {
  const { longest, step } = recipe;
  const levels = longest / step;
  const turned = draw(levels + recipe.counting);
  const known = new Set(recipe.alphabet);
  const letters = Array.from(answer).slice(0, longest).map((letter) => (known.has(letter) ? letter : "\ufffd"));
  while (letters.length < longest) letters.push("\0");
  const prefix = letters.slice(0, Math.min(turned + 1, levels) * step).join("");
  return [turned, ...hadamardSketch(recipe.sketch, prefix, draw)];
}

function duchi(recipe, answer, draw) {
  const upper = draw(recipe.scale.steps) < answer;
  const [numerator, denominator] = recipe.odds;
  return [upper !== draw(numerator + denominator) >= numerator ? 1 : 0];
}

function window(recipe, answer, draw) {
  const [numerator, denominator] = recipe.odds;
  const { places, width } = recipe;
  const { steps } = recipe.scale;
  const lifted = answer * places;
  const start = Math.floor(lifted / steps) + (draw(steps) < lifted % steps ? 1 : 0);
  const drawn = draw(width * numerator + places * denominator);
  if (drawn < width * numerator) return [start + Math.floor(drawn / numerator)];
  const outside = Math.floor((drawn - width * numerator) / denominator);
  return [outside + (outside >= start ? width : 0)];
}

function hybrid(recipe, answer, draw) {
  if (draw(GRID) < recipe.window_turns) return [1, ...window(recipe.window, answer, draw)];
  return [0, ...duchi(recipe.bit, answer, draw)];
}

function expMinus(numerator, denominator, draw) {
  let round = 1;
  while (draw(denominator * round) < numerator) round += 1;
  return round % 2 === 1;
}

function discreteLaplace(numerator, denominator, draw) {
  for (;;) {
    const rest = draw(numerator);
    if (!expMinus(rest, numerator, draw)) continue;
    let whole = 0;
    while (expMinus(1, 1, draw)) whole += 1;
    const size = Math.floor((rest + numerator * whole) / denominator);
    const negative = draw(2) === 1;
    if (size || !negative) return negative ? -size : size;
  }
}

function laplace(recipe, answer, draw) {
  const { steps } = recipe.scale;
  const [numerator, denominator] = recipe.claimed;
  const divisor = (a, b) => (b ? divisor(b, a % b) : a);
  const common = divisor(steps * denominator, numerator);
  const noisy = answer + discreteLaplace((steps * denominator) / common, numerator / common, draw);
  const reach = recipe.clamped ? 0 : Math.ceil((44 * steps * denominator) / numerator);
  return [Math.min(Math.max(noisy, -reach), steps + reach) + reach];
}

const RANDOMIZERS = {
  coins, unary, hashing, hadamard, subset, rappor, duchi, window, hybrid, laplace,
  "k-ary": (recipe, answer, draw) => kAry(recipe, answer, draw),
  "count-mean-sketch": sketch,
  "hadamard-sketch": hadamardSketch,
  "prefix-tree": prefixTree,
};

function whole(recipe, name, least, most) {
  const number = recipe[name];
  if (!Number.isSafeInteger(number) || number < least || number > most) throw new Refused(name);
  return number;
}

const stepsOf = (recipe) => whole(recipe.scale, "steps", 1, 2 ** 30);

function logOdds(recipe, name = "odds") {
  const [numerator, denominator] = [0, 1].map((place) => whole(recipe[name], place, 1, Number.MAX_SAFE_INTEGER));
  return Math.abs(Math.log(numerator) - Math.log(denominator));
}

/** The loss of a biased bit that is 1 with probability one / GRID under one answer, other / GRID under another. */
function logBit(one, other) {
  return Math.abs(Math.log(one) - Math.log(other)) + Math.abs(Math.log(GRID - one) - Math.log(GRID - other));
}

function lossOfCoins({ instructions }) {
  const tell = { yes: [1, 1], no: [0, 0], truth: [0, 1], opposite: [1, 0] };
  const [no, yes] = [0, 1].map((truth) => instructions.reduce((sum, word) => sum + tell[word][truth], 0));
  const all = instructions.length;
  return Math.max(Math.abs(Math.log(yes) - Math.log(no)), Math.abs(Math.log(all - yes) - Math.log(all - no)));
}

function lossOfDomain(recipe) {
  const domain = whole(recipe, "domain", 2, 2 ** 26);
  const further = { hashing: ["buckets", 2, 2 ** 20], hadamard: ["blocks", 1, domain], subset: ["count", 1, domain - 1] };
  if (recipe.protocol in further) whole(recipe, ...further[recipe.protocol]);
  return logOdds(recipe);
}

function lossOfUnary(recipe) {
  whole(recipe, "domain", 2, 2 ** 24);
  return logBit(whole(recipe, "keep", 1, GRID - 1), whole(recipe, "flip", 1, GRID - 1));
}

function lossOfString(recipe) {
  if (recipe.protocol === "prefix-tree") {
    for (const name of ["longest", "step", "counting"]) whole(recipe, name, 1, 64);
    const fits = recipe.longest % recipe.step === 0 && typeof recipe.alphabet === "string";
    if (!fits || recipe.sketch.protocol !== "hadamard-sketch") throw new Refused("tree");
    return lossOfString(recipe.sketch);
  }
  for (const name of ["width", "hashes"]) whole(recipe, name, 1, 2 ** 16);
  if (recipe.protocol === "hadamard-sketch") return logOdds(recipe);
  const flip = whole(recipe, "flip", 1, GRID - 1);
  const bitsTold = recipe.protocol === "rappor" && whole(recipe, "cohorts", 1, 2 ** 12) ? recipe.hashes : 1;
  return bitsTold * logBit(GRID - flip, flip); // two strings differ in two bits for each function
}

function lossOfPosition(recipe) {
  stepsOf(recipe);
  if (recipe.protocol === "window") for (const name of ["places", "width"]) whole(recipe, name, 1, 2 ** 20);
  return logOdds(recipe);
}

function lossOfHybrid(recipe) {
  const turns = whole(recipe, "window_turns", 0, GRID);
  const arms = [recipe.bit, recipe.window];
  if (arms[0].protocol !== "duchi" || arms[1].protocol !== "window" || stepsOf(arms[0]) !== stepsOf(arms[1])) {
    throw new Refused("arms");
  }
  return Math.max(...arms.filter((_, arm) => (arm ? turns > 0 : turns < GRID)).map(lossOfPosition));
}

function lossOfLaplace(recipe) {
  logOdds(recipe, "claimed");
  stepsOf(recipe);
  return recipe.claimed[0] / recipe.claimed[1];
}

const LOSSES = {
  coins: lossOfCoins, unary: lossOfUnary, hashing: lossOfDomain, hadamard: lossOfDomain, subset: lossOfDomain,
  rappor: lossOfString, duchi: lossOfPosition, window: lossOfPosition, hybrid: lossOfHybrid, laplace: lossOfLaplace,
  "k-ary": lossOfDomain,
  "count-mean-sketch": lossOfString,
  "hadamard-sketch": lossOfString,
  "prefix-tree": lossOfString,
};

/**
 * The epsilon of a recipe: the logarithm of the largest likelihood ratio among the responses it can draw, computed from
 * the probabilities that are run, whatever the server says of them.
 */
export function privacyLoss(recipe) {
  let loss = NaN;
  try {
    if (Object.hasOwn(LOSSES, recipe.protocol)) loss = LOSSES[recipe.protocol](recipe);
  } catch { /* told below */ }
  if (!Number.isFinite(loss)) throw new Refused("A recipe of the survey is unknown, broken, or would prove the answer.");
  return loss;
}

/** How many different answers a recipe randomizes; null for strings. */
export function countAnswers(recipe) {
  if (recipe.protocol === "coins") return 2;
  const loss = LOSSES[recipe.protocol];
  if (loss === lossOfString) return null;
  if (loss === lossOfDomain || loss === lossOfUnary) return whole(recipe, "domain", 2, 2 ** 26);
  return stepsOf(recipe.protocol === "hybrid" ? recipe.bit : recipe) + 1;
}

/** How many answers a recipe randomizes; refused where this is none of them, since no noise would cover it. */
function checkAnswer(recipe, answer) {
  const most = countAnswers(recipe);
  const fits = most === null ? typeof answer === "string" : Number.isInteger(answer) && answer >= 0 && answer < most;
  if (!fits) throw new Refused("The answer is none of those that the recipe randomizes.");
  return most;
}

/** The response to send for an answer: an index, a position on the scale, or a string. */
export function randomize(recipe, answer, draw = drawFrom()) {
  checkAnswer(recipe, answer);
  return RANDOMIZERS[recipe.protocol](recipe, answer, draw);
}

/** A text for an object whose keys are in order, the same for the same recipe. */
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{${Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(",")}}`;
}

function thisMonth() {
  const now = new Date();
  return `${now.getFullYear()}-${String(now.getMonth() + 1).padStart(2, "0")}`;
}

/**
 * What the respondent's own device remembers: responses drawn beforehand, and how much was told.
 * The responses to all possible answers of a question are drawn at its first use and kept, so that the same answer
 * always gets the same response (asking again teaches nothing) and the storage does not say which answer was given.
 * What it cannot tell apart it counts in full: each time a question is answered costs the recipe's epsilon, until all
 * of its responses are told. Months are those of this device. Strings are drawn anew and counted each time.
 */
export class Memory {
  constructor(storage = null, name = "deniable", mostAnswers = MOST_ANSWERS, allowance = ALLOWANCE, namePeriod = thisMonth) {
    Object.assign(this, { storage, name, mostAnswers, allowance, namePeriod, drawn: {} });
    this.state = { questions: {}, spent: {}, tickets: {}, ...JSON.parse(storage?.getItem(name) ?? "{}") };
  }

  response(question, recipe, answer, draw = drawFrom(), mostAnswers = this.mostAnswers) {
    const epsilon = privacyLoss(recipe);
    const size = checkAnswer(recipe, answer);
    if (recipe.protocol === "rappor") {
      throw new Refused("RAPPOR is for one string for life: keep its permanent response, send reports of that.");
    }
    const known = (this.state.questions[question] ??= { times: 0, drawn: {} });
    const key = canonical(recipe);
    const drawn = (known.drawn[key] ??= { told: 0, responses: [] });
    if (size === null || drawn.told < size) {
      this.spend(question, known, epsilon, Math.min(this.mostAnswers, mostAnswers || this.mostAnswers));
      drawn.told += 1;
    }
    let response;
    if (size !== null && size <= MOST_DRAWN) {
      if (!drawn.responses.length) {
        drawn.responses = (this.drawn[question] ??= {})[key] ??=
          Array.from({ length: size }, (_, each) => randomize(recipe, each, draw));
      }
      response = drawn.responses[answer];
    } else {
      // Before it is sent, an answer that is taken back and given again must not be drawn again either.
      response = (this.drawn[question] ??= {})[canonical([recipe, answer])] ??= randomize(recipe, answer, draw);
    }
    this.save();
    return response;
  }

  spend(question, known, epsilon, most) {
    const period = this.namePeriod();
    const spent = this.state.spent[period] ?? 0;
    if (known.times >= most) throw new Refused(`A question was already answered ${most} times on this device.`);
    if (spent + epsilon > this.allowance + 1e-9) {
      const told = `epsilon ${epsilon.toPrecision(3)}; this device has told ${spent.toPrecision(3)} of ${this.allowance}`;
      throw new Refused(`A question would tell ${told} in this month. Leave some questions out.`);
    }
    known.times += 1;
    this.state.spent[period] = spent + epsilon;
  }

  save() {
    this.storage?.setItem(this.name, JSON.stringify(this.state));
  }

  /** A copy to try answers on before sending: nothing is spent until it is adopted, yet nobody can draw twice. */
  draft() {
    const copy = new Memory(null, this.name, this.mostAnswers, this.allowance, this.namePeriod);
    copy.state = JSON.parse(JSON.stringify(this.state));
    copy.drawn = this.drawn;
    return copy;
  }

  /** Remember what a draft told: to be called before it is sent. */
  adopt(draft) {
    this.state = { ...draft.state, tickets: this.state.tickets };
    this.save();
  }

  /** Forget the responses; what was told in this month stays counted. */
  forget() {
    this.state = { questions: {}, spent: this.state.spent, tickets: {} };
    this.drawn = {};
    this.save();
  }

  /** The serial and the secret that stand for an invitation and a key until the response is received. */
  ticket(invitation, modulus, take = systemBytes) {
    const name = nameTicket(invitation, modulus);
    if (!(name in this.state.tickets)) {
      this.state.tickets[name] = [hex(take(32)), (drawBig(modulus - 1n, take) + 1n).toString(16)];
      this.save();
    }
    const [serial, secret] = this.state.tickets[name];
    return { serial, secret: BigInt(`0x${secret}`) };
  }

  /** The response was received: nothing here may join it with its invitation. */
  forgetTicket(invitation, key) {
    delete this.state.tickets[nameTicket(invitation, BigInt(`0x${key.modulus}`))];
    this.save();
  }
}

/** Under another key an invitation has another serial and secret; see client.py. */
function nameTicket(invitation, modulus) {
  return hex(sha256(new TextEncoder().encode(`${invitation} ${modulus.toString(16)}`)));
}

// SHA-384 (FIPS 180-4), in BigInt: it is used for tickets only, a few blocks at a time.
const MASK = (1n << 64n) - 1n;
const PRIMES = [];
for (let candidate = 2n; PRIMES.length < 80; candidate += 1n) {
  if (PRIMES.every((prime) => candidate % prime !== 0n)) PRIMES.push(candidate);
}

/** The first 64 bits of the fraction of a prime's root: floor(root(prime) 2^64) mod 2^64. */
function rootBits(prime, power) {
  const target = prime << (64n * power);
  let [low, high] = [0n, prime << 64n];
  while (high - low > 1n) {
    const middle = (low + high) >> 1n;
    if (middle ** power <= target) low = middle; else high = middle;
  }
  return low & MASK;
}

const ROUND512 = PRIMES.map((prime) => rootBits(prime, 3n));
const START384 = PRIMES.slice(8, 16).map((prime) => rootBits(prime, 2n));
const turn64 = (word, by) => ((word >> by) | (word << (64n - by))) & MASK;

/** The SHA-384 digest of bytes. */
export function sha384(message) {
  const padded = new Uint8Array((((message.length + 16) >> 7) + 1) << 7);
  padded.set(message);
  padded[message.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 4, message.length * 8);
  let state = START384;
  for (let at = 0; at < padded.length; at += 128) state = compress512(state, view, at);
  const digest = new DataView(new ArrayBuffer(48));
  state.slice(0, 6).forEach((word, index) => digest.setBigUint64(index * 8, word));
  return new Uint8Array(digest.buffer);
}

function compress512(state, view, at) {
  const words = Array.from({ length: 16 }, (_, i) => view.getBigUint64(at + i * 8));
  for (let i = 16; i < 80; i += 1) {
    const [early, late] = [words[i - 15], words[i - 2]];
    const first = turn64(early, 1n) ^ turn64(early, 8n) ^ (early >> 7n);
    const second = turn64(late, 19n) ^ turn64(late, 61n) ^ (late >> 6n);
    words.push((words[i - 16] + first + words[i - 7] + second) & MASK);
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let i = 0; i < 80; i += 1) {
    const choice = (turn64(e, 14n) ^ turn64(e, 18n) ^ turn64(e, 41n)) + ((e & f) ^ (~e & MASK & g));
    const one = h + choice + ROUND512[i] + words[i];
    const two = (turn64(a, 28n) ^ turn64(a, 34n) ^ turn64(a, 39n)) + ((a & b) ^ (a & c) ^ (b & c));
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) & MASK, c, b, a, (one + two) & MASK];
  }
  return [a, b, c, d, e, f, g, h].map((word, index) => (state[index] + word) & MASK);
}

const bigOf = (bytes) => BigInt(`0x${hex(bytes)}`);

/** A uniform integer below a large bound. */
function drawBig(bound, take) {
  const length = Math.ceil(bound.toString(16).length / 2);
  for (;;) {
    const drawn = bigOf(take(length));
    if (drawn < bound) return drawn;
  }
}

function powerModulo(base, exponent, modulus) {
  let [result, square] = [1n, base % modulus];
  for (let rest = exponent; rest > 0n; rest >>= 1n) {
    if (rest & 1n) result = (result * square) % modulus;
    square = (square * square) % modulus;
  }
  return result;
}

function inverseModulo(number, modulus) {
  let [rest, next, factor, following] = [number, modulus, 1n, 0n];
  while (next > 0n) {
    const quotient = rest / next;
    [rest, next, factor, following] = [next, rest - quotient * next, following, factor - quotient * following];
  }
  if (rest !== 1n) throw new Refused("The survey's key is not one for tickets.");
  return ((factor % modulus) + modulus) % modulus;
}

/** A serial as the number that is signed: EMSA-PSS of RFC 8017 with SHA-384 and no salt; see client.py. */
export function encodeSerial(serial, bits) {
  const length = Math.floor((bits + 6) / 8);
  const inner = new Uint8Array(56);
  inner.set(sha384(serial), 8);
  const digest = sha384(inner);
  const masked = new Uint8Array(length - 49);
  masked[masked.length - 1] = 1;
  for (let block = 0; block * 48 < masked.length; block += 1) {
    const mask = sha384(new Uint8Array([...digest, 0, 0, block >> 8, block & 255]));
    for (let at = 0; at < 48 && block * 48 + at < masked.length; at += 1) masked[block * 48 + at] ^= mask[at];
  }
  masked[0] &= 255 >> (8 * length - bits + 1);
  return bigOf(new Uint8Array([...masked, ...digest, 0xbc]));
}

const bytesOf = (text) => Uint8Array.from({ length: text.length / 2 }, (_, at) => parseInt(text.substr(at * 2, 2), 16));
const bitsOf = (number) => number.toString(2).length;

function readKey({ modulus, exponent }) {
  if (!/^[0-9a-f]+$/.test(modulus)) throw new Refused("The survey's key is not one for tickets.");
  const key = { modulus: BigInt(`0x${modulus}`), exponent: BigInt(exponent) };
  if (bitsOf(key.modulus) < 2048 || key.modulus % 2n === 0n || exponent !== 65537) {
    throw new Refused("The survey's key is not one for tickets.");
  }
  return key;
}

/** What is sent to have an invitation's ticket signed without being seen. */
export function blindTicket(key, invitation, memory, take = systemBytes) {
  const { modulus, exponent } = readKey(key);
  const { serial, secret } = memory.ticket(invitation, modulus, take);
  const encoded = encodeSerial(bytesOf(serial), bitsOf(modulus));
  inverseModulo((encoded * secret) % modulus, modulus); // refuses a factor that would mark the ticket; see client.py
  return ((encoded * powerModulo(secret, exponent, modulus)) % modulus).toString(16);
}

/** The ticket from the signature of its blinded form; checked. */
export function finishTicket(key, invitation, memory, signed) {
  const { modulus, exponent } = readKey(key);
  const { serial, secret } = memory.ticket(invitation, modulus);
  if (typeof signed !== "string" || !/^[0-9a-f]+$/.test(signed)) {
    throw new Refused("The server's answer is not a signature of a ticket.");
  }
  const signature = (BigInt(`0x${signed}`) * inverseModulo(secret, modulus)) % modulus;
  if (powerModulo(signature, exponent, modulus) !== encodeSerial(bytesOf(serial), bitsOf(modulus))) {
    throw new Refused("The server's signature is not one of the survey's key.");
  }
  return `${serial}.${signature.toString(16)}`;
}

/** A ticket for a survey that anyone may answer: so that a response sent twice counts once. */
export function openTicket(take = systemBytes) {
  return hex(take(32));
}

/** What a link says of the survey it was made for: the SHA-256 digest of the survey's document. */
export function pin(document) {
  const digest = String.fromCharCode(...sha256(document));
  return btoa(digest).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** A word as it is looked up: one form of each character (NFKC), lower case, single spaces. */
export function normalize(word) {
  const lower = word.replace(/\p{Surrogate}/gu, "\ufffd").normalize("NFKC").toLowerCase().normalize("NFKC");
  return lower.replace(/[\s\x1c-\x1f\x85\ufeff]+/g, " ").replace(/^ +| +$/g, "");
}

/** A number in digits, as both clients read it. */
const DIGITS = /^ *[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)? *$/;

/** Whether a question that is left out is responded to as if that were an answer. */
export function randomizesUnanswered(question) {
  return question.unanswered === "randomized";
}

/** An answer, or null for a question left out, as the numbers or strings that the question's parts randomize. */
export function encode(question, answer) {
  const hides = randomizesUnanswered(question);
  if ((answer ?? null) === null && hides) {
    if (question.type === "number") return [Math.floor(question.steps / 2), 0];
    return encode(question, question.type === "word" ? "" : NO_ANSWER);
  }
  if (question.type === "number") {
    const { lower, upper, steps } = question;
    const number = typeof answer === "string" && DIGITS.test(answer) ? Number(answer) : answer;
    if (typeof number !== "number" || Number.isNaN(number)) throw new Refused("An answer is a number.");
    const held = Math.min(Math.max(number, lower), upper);
    const place = Math.round(((held - lower) / (upper - lower)) * steps);
    return hides ? [place, 1] : [place];
  }
  if (question.type === "word") {
    if (typeof answer !== "string") throw new Refused("An answer is a text.");
    return [normalize(answer)];
  }
  const chosen = Array.isArray(answer) ? answer : [answer];
  if (!chosen.every((option) => question.options.includes(option)) || (question.type !== "several" && chosen.length !== 1)) {
    throw new Refused(`An answer is one of ${question.options.join(", ")}.`);
  }
  if (question.type === "several") return question.options.map((option) => (chosen.includes(option) ? 1 : 0));
  return [question.options.indexOf(chosen[0])];
}

/** Whether the recipes of a question randomize exactly the answers that it shows. */
function coversAnswers({ type, parts, options, lower, upper, steps, unanswered }) {
  const hides = randomizesUnanswered({ unanswered });
  const sizes = parts.map(countAnswers);
  const are = (...expected) => sizes.length === expected.length && sizes.every((size, at) => size === expected[at]);
  if (type === "word") return are(null);
  if (type === "number") {
    const real = [lower, upper, upper - lower].every(Number.isFinite) && lower < upper;
    return real && Number.isSafeInteger(steps) && steps >= 1 && are(steps + 1, ...(hides ? [2] : []));
  }
  if (!["yes-no", "choice", "several"].includes(type) || !Array.isArray(options)) return false;
  if (!options.every((option) => typeof option === "string") || new Set(options).size !== options.length) return false;
  if (hides && !options.includes(NO_ANSWER)) return false;
  return type === "several" ? are(...options.map(() => 2)) : are(options.length);
}

/**
 * Refuse a survey of which one question is broken, before any answer is looked at: a refusal that depended on the
 * answer would tell it, and that a response arrives must say nothing.
 */
export function checkSurvey({ questions, most_answers: most }) {
  let covered = false;
  try {
    const names = new Set(questions.map(({ name }) => name));
    covered = questions.every((question) => typeof question.name === "string" && coversAnswers(question))
      && names.size === questions.length && ((most ?? null) === null || (Number.isSafeInteger(most) && most >= 1));
  } catch { /* told below */ }
  if (!covered) throw new Refused("The survey is broken, or a recipe does not cover exactly the answers that are shown.");
  questions.forEach(checkStated);
}

/** The epsilon of a question by its recipes; refused where that is more than the survey says. */
export function checkStated(question) {
  const loss = question.parts.reduce((sum, part) => sum + privacyLoss(part), 0);
  if (!Number.isFinite(question.epsilon)) throw new Refused("The survey does not say an epsilon that is a number.");
  if (!(loss <= question.epsilon + 1e-9)) {
    throw new Refused(`The survey says epsilon ${question.epsilon}, but a recipe tells ${loss.toPrecision(3)}.`);
  }
  return loss;
}

/** Randomized responses to one question: one for each of its parts. */
export function respond(question, answer, memory = new Memory(), draw = drawFrom(), mostAnswers = undefined) {
  checkSurvey({ questions: [question], most_answers: mostAnswers });
  const values = encode(question, answer);
  // Another wording is another question: what was drawn for one is no answer to the other.
  const asked = hex(sha256(new TextEncoder().encode(canonical(question)))).slice(0, 32);
  return question.parts.map((part, index) =>
    memory.response(`${question.name}/${index} ${asked}`, part, values[index], draw, mostAnswers));
}
