// A long step: how far it is, looked up every half second, until it has ended.
const box = document.querySelector("[data-progress]");

async function look() {
  try {
    const told = await (await fetch(box.dataset.progress)).json();
    if (told.ended) return location.reload();
    box.querySelector("progress").value = told.done;
    box.querySelector("[role=status]").textContent = `${Math.round(told.done * 100)}% done`;
    const said = box.querySelector(".said");
    if (said && said.children.length !== told.said.length) {
      said.replaceChildren(...told.said.map((each) => Object.assign(document.createElement("li"), { textContent: each })));
    }
  } catch {
    box.querySelector("[role=status]").textContent = "The server does not answer. It is tried again.";
  }
  setTimeout(look, 500);
}

setTimeout(look, 500);
