// Client file for answering a deniable survey from a browser (or Node): one file, no dependencies, copy it anywhere.
//
// The answer is randomized here, with the platform's cryptographic entropy, before anything is sent. A recipe carries
// exact integer probabilities, so nothing here rounds. The same algorithms, in the same order of draws, are in
// client.py; both pass the same test vectors.
//
// All integers stay below 2^53, where a JavaScript number is exact. Products that could pass it use BigInt.

export const FORMAT = 1;
const GRID = 65536;

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
};

/** The response to send for an answer: an index, a position on the scale, or a string. */
export function randomize(recipe, answer, draw = drawFrom()) {
  return RANDOMIZERS[recipe.protocol](recipe, answer, draw);
}

/**
 * What the respondent's own device remembers: responses already given, and how much was spent on them.
 * The same answer to the same question always gets the same response, so asking again teaches nothing.
 */
export class Memory {
  constructor(storage = null, name = "deniable", mostAnswers = 3, allowance = Infinity) {
    Object.assign(this, { storage, name, mostAnswers, allowance, drawn: {} });
    this.state = { responses: {}, spent: {}, ...JSON.parse(storage?.getItem(name) ?? "{}") };
  }

  response(question, recipe, answer, epsilon, period = "", draw = drawFrom()) {
    const told = (this.state.responses[question] ??= {});
    const key = JSON.stringify([recipe, answer]);
    if (!(key in told)) {
      this.spend(question, told, epsilon, period);
      told[key] = (this.drawn[question] ??= {})[key] ??= randomize(recipe, answer, draw);
      this.save();
    }
    return recipe.protocol === "rappor" ? rapporReport(recipe, told[key], draw) : told[key];
  }

  spend(question, told, epsilon, period) {
    const spent = this.state.spent[period] ?? 0;
    if (Object.keys(told).length >= this.mostAnswers) {
      throw new Refused(`This question was already answered in ${this.mostAnswers} different ways on this device.`);
    }
    if (spent + epsilon > this.allowance + 1e-9) throw new Refused("This device has told enough for this period.");
    this.state.spent[period] = spent + epsilon;
  }

  save() {
    this.storage?.setItem(this.name, JSON.stringify(this.state));
  }

  /** A copy to try answers on before sending: nothing is spent until it is adopted, yet nobody can draw twice. */
  draft() {
    const copy = new Memory(null, this.name, this.mostAnswers, this.allowance);
    copy.state = JSON.parse(JSON.stringify(this.state));
    copy.drawn = this.drawn;
    return copy;
  }

  /** Remember what a draft told: to be called before it is sent. */
  adopt(draft) {
    this.state = draft.state;
    this.save();
  }

  forget() {
    this.state = { responses: {}, spent: {} };
    this.drawn = {};
    this.storage?.removeItem(this.name);
  }
}

/** An answer as the numbers or strings that the question's parts randomize. */
export function encode(question, answer) {
  if (question.type === "number") {
    const { lower, upper, steps } = question;
    const held = Math.min(Math.max(Number(answer), lower), upper);
    return [Math.round(((held - lower) / (upper - lower)) * steps)];
  }
  if (question.type === "word") return [String(answer).trim().toLowerCase()];
  const chosen = Array.isArray(answer) ? answer : [answer];
  if (question.type === "several") return question.options.map((option) => (chosen.includes(option) ? 1 : 0));
  return [question.options.indexOf(chosen[0])];
}

/** Randomized responses to one question: one for each of its parts. */
export function respond(question, answer, memory = new Memory(), period = "", draw = drawFrom()) {
  const values = encode(question, answer);
  const each = question.epsilon / question.parts.length;
  return question.parts.map((part, index) =>
    memory.response(`${question.name}/${index}`, part, values[index], each, period, draw));
}
