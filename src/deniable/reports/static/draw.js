// Draws each plot of the page from the specification lying beside it. Nothing is fetched: the loader refuses every
// address, and expressions are interpreted, not evaluated, so that the page works under a policy without `eval`.
const refusingLoader = vega.loader();
refusingLoader.load = (address) => Promise.reject(new Error("this page fetches nothing: " + address));

async function draw(figure) {
  const spec = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
  const place = figure.querySelector(".plot");
  try {
    const runtime = vega.parse(vegaLite.compile(spec).spec, null, { ast: true });
    const view = new vega.View(runtime, {
      expr: expressionInterpreter,
      loader: refusingLoader,
      renderer: "svg",
      container: place,
      hover: true,
    });
    await view.runAsync();
    figure.dataset.drawn = "yes";
  } catch (failure) {
    place.textContent = "This plot could not be drawn; its numbers are in the table below.";
    figure.dataset.drawn = "no";
    figure.querySelector("details").open = true;
    console.error(failure);
  }
}

document.querySelectorAll("figure.vega").forEach(draw);

// On paper every short table of numbers is shown, then closed again as the reader left it.
let closed = [];
window.addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details.short:not([open])")];
  closed.forEach((twin) => (twin.open = true));
});
window.addEventListener("afterprint", () => closed.forEach((twin) => (twin.open = false)));
