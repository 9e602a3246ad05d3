"use strict";
// Sorts tables, copies code, opens what is folded before printing. The page is complete without.
(() => {
  const key = (row, column) => {
    const cell = row.cells[column];
    if (!cell.classList.contains("number")) return cell.textContent.trim();
    return cell.dataset.value === undefined ? NaN : Number(cell.dataset.value);
  };

  const compare = (a, b) =>
    typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b;

  const sort = (table, column) => {
    const headers = [...table.tHead.rows[0].cells];
    const descending = headers[column].getAttribute("aria-sort") === "ascending";
    headers.forEach((header) => header.removeAttribute("aria-sort"));
    headers[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
    const keyed = [...table.tBodies[0].rows].map((row) => [key(row, column), row]);
    keyed.sort(([a], [b]) => {
      // What does not exist comes last in either direction.
      if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
      return descending ? compare(b, a) : compare(a, b);
    });
    table.tBodies[0].append(...keyed.map(([, row]) => row));
  };

  const button = (text, action) => {
    const element = document.createElement("button");
    element.type = "button";
    element.textContent = text;
    element.addEventListener("click", action);
    return element;
  };

  for (const table of document.querySelectorAll("table[data-sortable]")) {
    [...table.tHead.rows[0].cells].forEach((header, column) => {
      header.replaceChildren(button(header.textContent, () => sort(table, column)));
    });
  }

  const copy = async (pre) => {
    try {
      await navigator.clipboard.writeText(pre.textContent);
    } catch {
      getSelection().selectAllChildren(pre);
      document.execCommand("copy");
    }
  };

  const status = document.createElement("p");
  status.className = "status";
  status.setAttribute("role", "status");
  document.body.append(status);

  for (const code of document.querySelectorAll(".listing")) {
    const pre = code.querySelector("pre");
    const label = pre.getAttribute("aria-label");
    const element = button("Copy", async () => {
      await copy(pre);
      element.textContent = "Copied";
      status.textContent = `${label} copied`;
      setTimeout(() => { element.textContent = "Copy"; status.textContent = ""; }, 2000);
    });
    element.className = "copy";
    element.setAttribute("aria-label", `Copy: ${label}`);
    code.querySelector(".bar").append(element);
  }

  // Only what can be scrolled is a stop of the keyboard.
  const stops = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const scrolls =
        target.scrollWidth > target.clientWidth || target.scrollHeight > target.clientHeight;
      target.toggleAttribute("tabindex", scrolls);
      if (scrolls) target.tabIndex = 0;
    }
  });
  document.querySelectorAll(".scroll").forEach((element) => stops.observe(element));

  const print = matchMedia("print");
  const folded = new Set();
  const unfold = () => {
    for (const details of document.querySelectorAll("details:not([open])")) {
      folded.add(details);
      details.open = true;
    }
  };
  const fold = () => {
    folded.forEach((details) => { details.open = false; });
    folded.clear();
  };
  print.addEventListener("change", ({ matches }) => (matches ? unfold() : fold()));
  addEventListener("beforeprint", unfold);
  addEventListener("afterprint", fold);
})();
