// Looks for new answers every five seconds, and draws the results again when somebody answered.
import "./table.js";

const box = document.getElementById("results");

async function look() {
  try {
    const told = await (await fetch(box.dataset.results)).json();
    document.getElementById("minutes").innerHTML = "";
    document.getElementById("minutes").append(...parse(told.minutes));
    if (String(told.responses) !== box.dataset.count) {
      box.dataset.count = told.responses;
      document.getElementById("none")?.remove();
      const people = told.responses === 1 ? "person has" : "people have";
      document.getElementById("responses").textContent = `${told.responses.toLocaleString("en")} ${people} answered.`;
      box.replaceChildren(...parse(told.html));
      document.dispatchEvent(new CustomEvent("plots"));
    }
  } catch {
    // The server does not answer: it is asked again.
  }
  setTimeout(look, 5000);
}

// Text of our own server as nodes: scripts in it do not run, and it holds specifications alone.
function parse(text) {
  return new DOMParser().parseFromString(text, "text/html").body.childNodes;
}

if (box.dataset.results) setTimeout(look, 1000);
