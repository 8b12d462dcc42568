// Follow every draw of the browser's client file: node courses.mjs CLIENT < JOBS, a result for each job on one line.
//
// The client file is loaded as it stands, but for two things a test may ask for: a coarser grid, on which every draw can
// be followed, and its coin of bias exp(-a/b) as one decision whose probability stays a symbol.
import { readFileSync } from "node:fs";

const source = readFileSync(process.argv[2], "utf-8");
const GRID = "const GRID = 65536;";
const OPENED = "\nexport { expMinus };\nexport function useCoin(coin) { expMinus = coin; }\n";

async function load(grid) {
  if (source.split(GRID).length !== 2) throw new Error("the client file has not one grid");
  const text = source.replace(GRID, `const GRID = ${grid};`) + OPENED;
  return import(`data:text/javascript;base64,${Buffer.from(text).toString("base64")}`);
}

class Fork extends Error {
  constructor(choices) { super(); this.choices = choices; }
}
class Ended extends Error {}

// Every course of `run(draw, coin)` with its probability, as counts of equal ones: 1/divisor times factors, where +a/b
// stands for exp(-a/b) and -a/b for what it leaves of one. A course ends as "again" when the `restart` bound is drawn a
// second time, and as "open" after `most` decisions.
function follow(run, { fixed = {}, restart = 0, most = 1000 }) {
  const seen = {};
  const waiting = [{ values: [], divisor: 1n, factors: [] }];
  while (waiting.length) {
    const course = waiting.pop();
    let step = 0;
    let starts = 0;
    const decide = (choices) => {
      if (step < course.values.length) return course.values[step++];
      if (step >= most) throw new Ended("open");
      throw new Fork(choices());
    };
    const draw = (bound) => {
      if (bound in fixed) return fixed[bound];
      if (bound === restart && (starts += 1) > 1) throw new Ended("again");
      return decide(() => Array.from({ length: bound }, (_, value) => [value, BigInt(bound), []]));
    };
    const coin = (a, b) => decide(() => (a === 0 ? [[true, 1n, []]] : [[true, 1n, [`+${a}/${b}`]], [false, 1n, [`-${a}/${b}`]]]));
    let response;
    try {
      response = JSON.stringify(run(draw, coin));
    } catch (end) {
      if (end instanceof Fork) {
        for (const [value, divisor, factors] of end.choices) {
          waiting.push({
            values: [...course.values, value],
            divisor: course.divisor * divisor,
            factors: [...course.factors, ...factors],
          });
        }
        continue;
      }
      if (!(end instanceof Ended)) throw end;
      response = end.message;
    }
    const chance = [course.divisor, ...course.factors.sort()].join(" ");
    const counts = (seen[response] ??= {});
    counts[chance] = (counts[chance] ?? 0) + 1;
  }
  return seen;
}

// How often each response comes when one draw takes every value and all others are 0.
function sweep(run, at) {
  const seen = {};
  for (let value = 0, bound = 1; value < bound; value += 1) {
    let step = 0;
    const response = JSON.stringify(run((given) => {
      if (step++ !== at) return 0;
      bound = given;
      return value;
    }));
    seen[response] = (seen[response] ?? 0) + 1;
  }
  return seen;
}

// Every word of as many bytes as a bound takes: how often each number is drawn, and how often it is drawn again.
function words(client, bound) {
  const counts = new Array(bound).fill(0);
  let again = 0;
  for (let word = 0, whole = 1; word < whole; word += 1) {
    let asked = 0;
    const take = (count) => {
      if (asked++) throw new Ended("again");
      whole = 256 ** count;
      return Array.from({ length: count }, (_, place) => Math.floor(word / 256 ** (count - 1 - place)) % 256);
    };
    try {
      counts[client.drawFrom(take)(bound)] += 1;
    } catch (end) {
      if (!(end instanceof Ended)) throw end;
      again += 1;
    }
  }
  return { least: Math.min(...counts), most: Math.max(...counts), again };
}

// What a memory says to answers in turn: a response, or "refused"; and what it has counted as told.
function remember(client, { most, allowance, told }) {
  const stored = {};
  const storage = { getItem: (name) => stored[name] ?? null, setItem: (name, text) => { stored[name] = text; } };
  const open = (period) => new client.Memory(storage, "memory", most ?? undefined, allowance ?? undefined, () => period);
  const heard = told.map(([question, answer, recipe, period]) => {
    try {
      return open(period).response(question, recipe, answer);
    } catch (refusal) {
      if (!(refusal instanceof client.Refused)) throw refusal;
      return "refused";
    }
  });
  return { heard, spent: open("").state.spent, stored: JSON.parse(stored.memory) };
}

// One answer to questions of surveys in turn: how many responses to the last, and what was counted as told.
function answer(client, { question, questions = [question], given, period }) {
  const memory = new client.Memory(null, "memory", undefined, undefined, () => period);
  try {
    const told = questions.map((each) => client.respond(each, given, memory));
    return { responses: told.at(-1).length, spent: memory.state.spent };
  } catch (refusal) {
    if (!(refusal instanceof client.Refused)) throw refusal;
    return "refused";
  }
}

async function perform(job) {
  const client = await load(job.grid ?? 65536);
  const { recipe, answer: value } = job;
  switch (job.kind) {
    case "loss": {
      try {
        return client.privacyLoss(recipe);
      } catch (refusal) {
        if (!(refusal instanceof client.Refused)) throw refusal;
        return "refused";
      }
    }
    case "word": return client.normalize(value);
    case "encode": {
      try {
        return client.encode(job.question, { nan: NaN, inf: Infinity }[job.said] ?? value);
      } catch (refusal) {
        if (!(refusal instanceof client.Refused)) throw refusal;
        return "refused";
      }
    }
    case "pin": return client.pin(new TextEncoder().encode(value));
    case "serial": return client.encodeSerial(Uint8Array.from(Buffer.from(value, "hex")), job.bits).toString(16);
    case "tickets": {
      const memory = new client.Memory(null, "memory");
      const taken = job.moduli.map((modulus) => memory.ticket("x", BigInt(`0x${modulus}`)).serial);
      memory.forgetTicket("x", { modulus: job.moduli[0] });
      return [...taken, memory.ticket("x", BigInt(`0x${job.moduli[0]}`)).serial];
    }
    case "blind": {
      const memory = { ticket: () => ({ serial: value, secret: BigInt(job.secret) }) };
      try {
        return client.blindTicket({ modulus: job.modulus, exponent: 65537 }, "x", memory);
      } catch (refusal) {
        if (!(refusal instanceof client.Refused)) throw refusal;
        return "refused";
      }
    }
    case "given": {
      try {
        return client.randomize(recipe, value).length;
      } catch (refusal) {
        if (!(refusal instanceof client.Refused)) throw refusal;
        return "refused";
      }
    }
    case "law": return follow((draw) => client.randomize(recipe, value, draw), job);
    case "report": return follow((draw) => client.rapporReport(recipe, value, draw), job);
    case "coin": return follow((draw) => client.expMinus(...value, draw), job);
    case "symbolic": {
      const own = client.expMinus;
      try {
        return follow((draw, coin) => {
          client.useCoin(coin);
          return client.randomize(recipe, value, draw);
        }, job);
      } finally {
        client.useCoin(own);
      }
    }
    case "sweep": return sweep((draw) => client.randomize(recipe, value, draw), job.at);
    case "words": return words(client, job.bound);
    case "memory": return remember(client, job);
    case "survey": return answer(client, job);
    default: throw new Error(`there is no job '${job.kind}'`);
  }
}

for (const job of JSON.parse(readFileSync(0, "utf-8"))) console.log(JSON.stringify(await perform(job)));
