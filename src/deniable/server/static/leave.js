// Whoever leaves takes along what their questions left in the browser's tab.
document.querySelector("form.leave")?.addEventListener("submit", () => sessionStorage.clear());
