// Tables of class ticdc-sorts can be explored without a kernel: a click on a head sorts, and so does a list where rows
// are blocks; the field above filters, the buttons beside it show how the values of each column are spread, and copy or
// save the rows that are left; a click on a timestamp copies it. All of it works on the rows of the page, whose number
// stands beside. Cells of any table that a click copies or chooses are one stop of the Tab key a table: arrows go
// through them, Enter and Space click.
function ticdcCopying() {
  if (globalThis.ticdcCopies) return;
  globalThis.ticdcCopies = true;
  const DONE_MS = 1200;
  const STEPS = 12;
  const CLICKED = "td:is(.ticdc-ts, .ticdc-chooses)";
  const SPREAD = ":is(.ticdc-bars, .ticdc-spread)";
  const looks = document.createElement("style");
  looks.textContent = `@media screen { .ticdc-tools[hidden] { display: flex } } .ticdc-tools { gap: 4px 8px; flex-wrap: wrap; align-items: center;
    font-size: 12px; margin: 4px 0 } .ticdc-tools input { font: inherit; padding: 1px 6px; width: 14em; max-width: 50%;
    background: transparent; color: inherit; border: 1px solid #8888; border-radius: 4px }
    .ticdc-tools select { font: inherit; max-width: 12em } .ticdc-tools:not(:has(+ .stacked, + * .stacked)) select { display: none }
    .ticdc-tools button { font: inherit; padding: 1px 8px; opacity: .75; cursor: pointer } td.ticdc-ts { cursor: copy }
    .ticdc-sorts th { cursor: pointer } .ticdc-sorts th[aria-sort]::after { content: " ▲" }
    .ticdc-sorts th[aria-sort="descending"]::after { content: " ▼" } .ticdc-sorts tr.ticdc-out { display: none }
    .ticdc-sorts td.ticdc-ts small { display: block; opacity: .7; white-space: nowrap }
    .ticdc-tools button.ticdc-copied::after { content: " ✓" } .ticdc-bars { display: none }
    @media screen { .ticdc-spread-out .ticdc-bars { display: flex; align-items: flex-end; gap: 1px; height: 18px } }
    .ticdc-bars i { flex: 0 1 8px; background: currentColor; opacity: .45 } td.ticdc-copied span::after { content: " ✓" }
    :is(.ticdc-sorts th, ${CLICKED}, ${SPREAD}):focus-visible { outline: 2px solid #d55e00; outline-offset: -2px }
    ${SPREAD}:focus-visible::after { content: attr(title); position: absolute; top: 100%; z-index: 3; padding: 4px 8px;
    white-space: pre; text-align: left; font-weight: 400; background: #1d1d1f; color: #fff }`;
  document.head.append(looks);

  // Whether it could: a page from elsewhere without TLS has no clipboard, but what is chosen can be copied by hand.
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return false;
    }
  }

  function choose(node) {
    const range = document.createRange();
    range.selectNodeContents(node);
    const chosen = getSelection();
    chosen.removeAllRanges();
    chosen.addRange(range);
  }

  const tableOf = (bar) => (bar.nextElementSibling.matches("table") ? bar.nextElementSibling : bar.nextElementSibling.querySelector("table"));
  const said = (cell) => ((cell.matches(".ticdc-ts") && cell.querySelector("span")) || cell).textContent.trim().replace(/\s+/g, " ");
  const whole = (cell) => cell.dataset.whole ?? said(cell); // also of a cell that is cut; empty where there is no value
  const number = (text) => {
    const digits = text.replaceAll(",", "");
    if (/^-?\d+$/.test(digits)) return BigInt(digits); // a TSO needs more than 53 bits
    return /^-?\d*\.\d+$/.test(digits) ? Number(digits) : null;
  };

  function compared(a, b) {
    const [x, y] = [number(a), number(b)];
    if (x !== null && y !== null) return x < y ? -1 : x > y ? 1 : 0;
    return a === "" || b === "" ? (a === "") - (b === "") : a.localeCompare(b, "en", { numeric: true });
  }

  function sort(head, up = head.getAttribute("aria-sort") !== "ascending") {
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const body = head.closest("table").tBodies[0];
    const rows = [...body.rows].map((row) => [whole(row.cells[head.cellIndex]), row]);
    rows.sort(([a], [b]) => (up ? compared(a, b) : compared(b, a)));
    body.append(...rows.map(([, row]) => row));
  }

  const found = (row) => [...row.cells].map((cell) => `${cell.textContent} ${cell.dataset.whole ?? ""}`).join(" ").toLowerCase();

  function filter(input) {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const table = tableOf(input.parentElement);
    for (const row of table.tBodies[0].rows) row.classList.toggle("ticdc-out", !words.every((word) => found(row).includes(word)));
    counted(input.parentElement);
    stop(table);
    if (table.classList.contains("ticdc-spread-out")) spread(table);
  }

  const left = (table) => [...table.tBodies[0].rows].filter((row) => !row.classList.contains("ticdc-out"));

  function counted(bar) {
    const table = tableOf(bar);
    const [n, all] = [left(table).length, table.tBodies[0].rows.length];
    bar.querySelector("output").textContent = `${n === all ? "" : `${n} of `}${all} ${all === 1 ? "row" : "rows"} on this page`;
  }

  // Where rows are blocks, they have no heads to click.
  function listed(bar) {
    const by = Object.assign(document.createElement("select"), { ariaLabel: "sort rows" });
    const ways = [...tableOf(bar).tHead.rows[0].cells].flatMap((head) => [`${said(head)}, ascending`, `${said(head)}, descending`]);
    by.append(...["sort by", ...ways].map((way) => new Option(way)));
    bar.firstElementChild.after(by);
  }

  // A bar for each step of numbers, or for each of the most frequent texts; who points at them reads what they are.
  function spread(table) {
    for (const [i, head] of [...table.tHead.rows[0].cells].entries()) {
      const cells = left(table).map((row) => row.cells[i]);
      const texts = cells.map(said);
      const numbers = cells.filter((cell) => whole(cell) !== "").map((cell) => number(said(cell)));
      const [low, high] = [Math.min(...numbers.map(Number)), Math.max(...numbers.map(Number))];
      let bars;
      if (numbers.length && !numbers.includes(null) && low < high) {
        const [step, counts] = [(high - low) / STEPS, Array(STEPS).fill(0)];
        for (const n of numbers) counts[Math.min(STEPS - 1, Math.floor((Number(n) - low) / step))] += 1;
        const digits = { maximumFractionDigits: Math.min(20, Math.max(3, Math.ceil(1 - Math.log10(step)))) };
        bars = counts.map((n, b) => [`from ${(low + b * step).toLocaleString("en", digits)}`, n]);
      } else {
        const found = new Map();
        for (const text of texts) found.set(text, (found.get(text) ?? 0) + 1);
        bars = [...found];
      }
      if (bars.length > STEPS) bars = bars.sort(([, a], [, b]) => b - a).slice(0, STEPS);
      const most = Math.max(1, ...bars.map(([, n]) => n));
      const box = document.createElement("span");
      box.title = bars.map(([text, n]) => `${text || "(empty)"}: ${n}`).join("\n");
      Object.assign(box, { className: "ticdc-bars", tabIndex: 0, role: "img", ariaLabel: box.title });
      box.append(...bars.map(([, n]) => {
        const bar = document.createElement("i");
        bar.style.height = `${Math.max(n ? 1 : 0, Math.round((18 * n) / most))}px`;
        return bar;
      }));
      head.querySelector(".ticdc-bars")?.remove();
      head.append(box);
    }
  }

  function saved(table) {
    const quote = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const lines = [table.tHead.rows[0], ...left(table)].map((row) => [...row.cells].map((cell) => quote(whole(cell))).join(","));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
    link.download = "rows.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 20_000);
  }

  async function copyRows(button) {
    const table = tableOf(button.parentElement);
    const text = [table.tHead.rows[0], ...left(table)].map((row) => [...row.cells].map((cell) => whole(cell).replace(/\s+/g, " ")).join("\t")).join("\n");
    if (await copy(text)) done(button);
    else choose(table);
  }

  function done(node) {
    node.classList.add("ticdc-copied");
    setTimeout(() => node.classList.remove("ticdc-copied"), DONE_MS);
  }

  async function copyTs(cell) {
    choose(cell.querySelector("span") ?? cell);
    if (await copy(said(cell))) done(cell);
  }

  // The cell that Tab reaches is the one that the arrows left, or the first.
  function stop(table, at) {
    const cells = [...table.querySelectorAll(CLICKED)].filter((cell) => !cell.closest(".ticdc-out"));
    const to = at ?? cells.find((cell) => cell.tabIndex === 0) ?? cells[0];
    for (const cell of table.querySelectorAll(`${CLICKED}[tabindex="0"]`)) if (cell !== to) cell.tabIndex = -1;
    if (!to) return;
    to.title = to.matches(".ticdc-chooses") ? "Enter chooses it" : "Enter copies it";
    to.tabIndex = 0;
  }

  const beside = { ArrowLeft: "previousElementSibling", ArrowRight: "nextElementSibling" };
  const below = { ArrowUp: "previousElementSibling", ArrowDown: "nextElementSibling" };

  function moved(cell, key) {
    if (beside[key]) {
      let to = cell[beside[key]];
      while (to && !to.matches(CLICKED)) to = to[beside[key]];
      return to;
    }
    let row = cell.parentElement[below[key]];
    while (row && (row.matches(".ticdc-out") || !row.querySelector(CLICKED))) row = row[below[key]];
    return row && (row.cells[cell.cellIndex]?.matches(CLICKED) ? row.cells[cell.cellIndex] : row.querySelector(CLICKED));
  }

  document.addEventListener("click", ({ target }) => {
    const [button, ts] = [target.closest?.("button.ticdc-copy"), target.closest?.("td.ticdc-ts")];
    const head = target.closest?.(".ticdc-sorts th");
    const [bars, file] = ["ticdc-spreads", "ticdc-save"].map((name) => target.closest?.(`button.${name}`));
    if (button) copyRows(button);
    else if (bars) {
      const table = tableOf(bars.parentElement);
      bars.setAttribute("aria-pressed", table.classList.toggle("ticdc-spread-out"));
      if (bars.ariaPressed === "true") spread(table);
    } else if (file) saved(tableOf(file.parentElement));
    else if (head) sort(head);
    else if (ts) copyTs(ts);
  });
  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    const cell = target.matches?.(CLICKED);
    if (event.ctrlKey || event.altKey || event.metaKey || !(cell || target.matches?.(".ticdc-sorts th"))) return;
    const to = cell && (key in beside || key in below) && moved(target, key);
    if (!to && !["Enter", " "].includes(key)) return;
    event.preventDefault(); // a blank would scroll
    if (!to) return target.click();
    stop(target.closest("table"), to);
    to.focus();
  });

  // Tables that are there, and those that cells of a notebook, figures and widgets bring later.
  let due = 0;
  function begun() {
    due = 0;
    for (const bar of document.querySelectorAll(".ticdc-tools")) {
      if (!bar.nextElementSibling || bar.querySelector("output").textContent) continue;
      counted(bar);
      listed(bar);
    }
    for (const table of document.querySelectorAll(`table:has(${CLICKED}):not(:has(${CLICKED}[tabindex="0"]))`)) stop(table);
  }
  new MutationObserver(() => (due ||= setTimeout(begun, 120))).observe(document, { childList: true, subtree: true });
  begun();
  document.addEventListener("input", ({ target }) => {
    if (target.matches?.(".ticdc-tools input")) filter(target);
    if (!target.matches?.(".ticdc-tools select") || !target.selectedIndex) return;
    const way = target.selectedIndex - 1;
    sort(tableOf(target.parentElement).tHead.rows[0].cells[way >> 1], way % 2 === 0);
  });
}
ticdcCopying();
