// Keys, and messages as they come. Every page works without this file, but for the live one.
"use strict";

let before = "";
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select");
  if (typing && event.key === "Escape") typing.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "?") {
    document.getElementById("keys").showModal();
    return;
  }
  const wanted = before + event.key;
  const found = [...document.querySelectorAll("[data-key]")].find(
    (one) => one.dataset.key === wanted || (!before && one.dataset.key === event.key));
  if (found) {
    event.preventDefault();
    before = "";
    if (found.matches("a")) found.click();
    else found.focus();
  } else {
    before = event.key === "g" && !before ? "g" : "";
  }
});

// A job that runs is looked at again until it does not.
function lookAgain() {
  const job = document.getElementById("job");
  if (!job || !("runs" in job.dataset)) return;
  setTimeout(async () => {
    try {
      const page = new DOMParser().parseFromString(await (await fetch(location.href)).text(), "text/html");
      const now = page.getElementById("job");
      if (now) job.replaceWith(now);
      else location.reload();
    } catch (error) {
      // The console is away for a moment: the next look may find it.
    }
    lookAgain();
  }, 1000);
}
lookAgain();

const MOST_ROWS = 500;
const rows = document.getElementById("tail");
if (rows) {
  const state = document.getElementById("state");
  const pause = document.getElementById("pause");
  const source = new EventSource(rows.dataset.events);
  let paused = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
  });
  source.addEventListener("open", () => { state.textContent = state.dataset.waiting; });
  source.addEventListener("error", () => { state.textContent = state.dataset.lost; });
  source.addEventListener("skipped", (event) => {
    state.textContent = `${JSON.parse(event.data).count} ${state.dataset.skipped}`;
  });
  source.addEventListener("problem", (event) => { state.textContent = JSON.parse(event.data).text; });
  source.addEventListener("message", (event) => {
    if (paused) return;
    const told = JSON.parse(event.data);
    const row = document.createElement("tr");
    for (const name of ["time", "queue", "offset", "tags", "keys", "body"]) {
      const cell = document.createElement("td");
      // textContent: what a message says is text, whatever it looks like.
      if (name === "time") {
        const link = document.createElement("a");
        link.href = told.link;
        link.textContent = told.time;
        cell.append(link);
      } else {
        cell.textContent = told[name];
        if (name === "offset") cell.className = "n";
        if (name === "body") cell.className = "body";
      }
      row.append(cell);
    }
    rows.prepend(row);
    while (rows.rows.length > MOST_ROWS) rows.deleteRow(-1);
  });
}
