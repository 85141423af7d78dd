// Keys and buttons: j and k go through rows, x chooses a row, / goes to the search, "Copy" copies a program.
"use strict";
(() => {
  const rows = () => [...document.querySelectorAll("tr[data-row]")];
  const typing = (target) => target.closest("input:not([type=checkbox]), select, textarea") !== null;

  function step(by) {
    const all = rows();
    if (all.length === 0) return;
    const at = all.indexOf(document.activeElement.closest("tr[data-row]"));
    const next = all[Math.min(Math.max(at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by, 0), all.length - 1)];
    next.querySelector("a").focus();
    next.scrollIntoView({ block: "nearest" });
  }

  const keys = {
    j: () => step(1),
    k: () => step(-1),
    x: () => {
      const row = document.activeElement.closest("tr[data-row]");
      const box = row && row.querySelector("input[name=ids]");
      if (box) box.checked = !box.checked;
    },
    "/": () => {
      const field = document.querySelector("[data-search]");
      if (field) field.focus();
      return field !== null;
    },
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    const act = keys[event.key];
    if (act && act() !== false) event.preventDefault();
  });

  document.addEventListener("change", (event) => {
    if (!event.target.matches("input[data-all]")) return;
    for (const box of document.querySelectorAll("input[name=ids][type=checkbox]")) box.checked = event.target.checked;
  });

  async function copy(text) {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = document.createElement("textarea"); // without https a browser has no clipboard
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("not copied");
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    const label = button.textContent;
    try {
      await copy(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not copied: select the text";
    }
    setTimeout(() => { button.textContent = label; }, 1500);
  });
})();
