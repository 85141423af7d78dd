// Keys and buttons: j and k go through rows, x chooses a row, / goes to the search. On the page of a finding n and p go
// to the next and previous finding of the list, u goes back to the list, s goes to the state. "Copy" copies a program.
"use strict";
(() => {
  const rows = () => [...document.querySelectorAll("tr[data-row]")];
  const typing = (target) => target.closest("input:not([type=checkbox]), select, textarea") !== null;

  // The list that was shown last in this tab, for the pages of its findings.
  const LIST = "ddefuzz-list";
  function remember() {
    if (location.pathname !== "/findings") return;
    const links = rows().map((row) => row.querySelector("a").getAttribute("href"));
    sessionStorage.setItem(LIST, JSON.stringify({ address: location.pathname + location.search, links }));
  }
  function list() {
    return JSON.parse(sessionStorage.getItem(LIST) || '{"address": "/findings", "links": []}');
  }
  function neighbour(by) {
    const { address, links } = list();
    const at = links.indexOf(location.pathname);
    if (document.querySelector("[data-up]") === null) return false;
    location.assign(at >= 0 && at + by in links ? links[at + by] : address);
  }

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
      if (box) {
        box.checked = !box.checked;
        count();
      }
    },
    n: () => neighbour(1),
    p: () => neighbour(-1),
    u: () => {
      if (document.querySelector("[data-up]") === null) return false;
      location.assign(list().address);
    },
    s: () => {
      const field = document.querySelector("[data-state]");
      if (field) field.focus();
      return field !== null;
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

  const boxes = () => [...document.querySelectorAll("input[name=ids][type=checkbox]")];
  function count() {
    const place = document.querySelector("[data-chosen]");
    if (place) place.textContent = ` (${boxes().filter((box) => box.checked).length})`;
  }

  document.addEventListener("change", (event) => {
    if (event.target.matches("input[data-all]")) for (const box of boxes()) box.checked = event.target.checked;
    if (event.target.matches("input[data-all], input[name=ids]")) count();
  });

  // Pages that change while a campaign runs. A browser has few connections to a server, so hidden tabs have none.
  let news = null;
  function follow() {
    if (document.hidden || document.getElementById("live") === null) {
      if (news) news.close();
      news = null;
    } else if (news === null && window.EventSource) {
      news = new EventSource("/events");
      news.addEventListener("campaigns", () => htmx.trigger("#live", "news"));
    }
  }
  document.addEventListener("visibilitychange", follow);
  window.addEventListener("pagehide", () => { if (news) news.close(); news = null; });
  follow();

  remember();
  document.addEventListener("htmx:pushedIntoHistory", remember); // after a filter has changed the list

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
