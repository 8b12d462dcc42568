// What a randomized response says, in words that a respondent can compare with the answer given.

/** The response to a question, read as it will be read at the other end. */
export function said(question, responses) {
  if (question.type === "several") {
    const named = question.options.filter((_, index) => responses[index][0] === 1);
    return named.length ? named.join(", ") : "none of them";
  }
  const [recipe] = question.parts;
  const [response] = responses;
  if (question.type === "number") {
    const hidden = responses.length === 2 && responses[1][0] === 0;
    return `${number(question, recipe, response)}${hidden ? ", and that you gave none" : ""}`;
  }
  if (question.type === "word") return `one bit of a fingerprint (${response.at(-1)})`;
  return choice(question, recipe, response);
}

/** An answer as the respondent gave it. */
export function answered(question, answer) {
  if (answer === undefined) return "no answer";
  if (question.type === "number") return `${answer} ${question.unit ?? ""}`.trim();
  if (question.type === "several") return answer.length ? answer.join(", ") : "none of them";
  return question.type === "yes-no" ? capital(answer) : String(answer);
}

function capital(word) {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

function choice(question, recipe, response) {
  const [first] = response;
  switch (recipe.protocol) {
    case "coins":
    case "k-ary":
      return question.type === "yes-no" ? capital(question.options[first]) : question.options[first];
    case "subset":
      return `one of: ${first.map((index) => question.options[index]).join(", ")}`;
    case "unary":
      return listed(question.options.filter((_, at) => (parseInt(first.substr((at >> 3) * 2, 2), 16) >> (at & 7)) & 1));
    case "hashing":
      return `bucket ${response[1] + 1} of ${recipe.buckets} of a hash`;
    default:
      return `column ${first} of a table`;
  }
}

function listed(options) {
  return options.length ? `one of: ${options.join(", ")}` : "none marked";
}

function number(question, recipe, response) {
  switch (recipe.protocol) {
    case "duchi":
      return response[0] ? "rather high" : "rather low";
    case "hybrid":
      return response[0] ? cell(question, recipe.window, response[1]) : response[1] ? "rather high" : "rather low";
    case "window":
      return cell(question, recipe, response[0]);
    default:
      return noisy(question, recipe, response[0]);
  }
}

function cell(question, recipe, index) {
  const share = (index - (recipe.width - 1) / 2) / recipe.places; // the middle of the window that holds this cell
  const steps = Math.round(share * question.steps);
  return `about ${Number((question.lower + steps * question.step).toPrecision(6))} ${question.unit ?? ""}`.trim();
}

function noisy(question, recipe, response) {
  const reach = recipe.clamped ? 0 : Math.ceil((44 * question.steps * recipe.claimed[1]) / recipe.claimed[0]);
  const value = question.lower + (response - reach) * question.step;
  return `${Number(value.toPrecision(6))} ${question.unit ?? ""}`.trim();
}
