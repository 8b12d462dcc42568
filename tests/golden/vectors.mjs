// Run the shared test vectors through the browser's client file: node vectors.mjs CLIENT VECTORS
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const client = await import(pathToFileURL(process.argv[2]).href);
const document = JSON.parse(readFileSync(process.argv[3], "utf-8"));
let passed = 0;
const same = (found, expected, what) => {
  if (JSON.stringify(found) !== JSON.stringify(expected)) throw new Error(`${what}: ${JSON.stringify(found)}`);
  passed += 1;
};
for (const [value, seed, expected] of document.hash32) same(client.hash32(value, seed), expected, "hash32");
for (const [text, method, width, expected] of document.position) {
  same(client.position(text, method, width), expected, "position");
}
for (const { recipe, answer, entropy, response } of document.vectors) {
  const bytes = Buffer.from(entropy, "hex");
  let at = 0;
  const take = (count) => bytes.subarray(at, (at += count));
  same(client.randomize(recipe, answer, client.drawFrom(take)), response, recipe.protocol);
  same(at, bytes.length, `${recipe.protocol}: entropy used`);
}
console.log(passed);
