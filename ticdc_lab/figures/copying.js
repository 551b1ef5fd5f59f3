// Tables of class ticdc-sorts can be explored without a kernel: a click on a head sorts, the field above filters, the
// buttons beside it show how the values of each column are spread, and copy or save the rows that are left; a click on
// a timestamp copies it. All of it works on the rows of the page, whose number stands beside.
function ticdcCopying() {
  if (globalThis.ticdcCopies) return;
  globalThis.ticdcCopies = true;
  const DONE_MS = 1200;
  const STEPS = 12;
  const looks = document.createElement("style");
  looks.textContent = `@media screen { .ticdc-tools[hidden] { display: flex } } .ticdc-tools { gap: 4px 8px; flex-wrap: wrap; align-items: center;
    font-size: 12px; margin: 4px 0 } .ticdc-tools input { font: inherit; padding: 1px 6px; width: 14em; max-width: 50%;
    background: transparent; color: inherit; border: 1px solid #8888; border-radius: 4px }
    .ticdc-tools button { font: inherit; padding: 1px 8px; opacity: .75; cursor: pointer } td.ticdc-ts { cursor: copy }
    .ticdc-sorts th { cursor: pointer } .ticdc-sorts th[aria-sort]::after { content: " ▲" }
    .ticdc-sorts th[aria-sort="descending"]::after { content: " ▼" } .ticdc-sorts tr.ticdc-out { display: none }
    .ticdc-sorts td.ticdc-ts small { display: block; opacity: .7; white-space: nowrap }
    .ticdc-tools button.ticdc-copied::after { content: " ✓" } .ticdc-bars { display: none }
    @media screen { .ticdc-spread-out .ticdc-bars { display: flex; align-items: flex-end; gap: 1px; height: 18px } }
    .ticdc-bars i { flex: 0 1 8px; background: currentColor; opacity: .45 }`;
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

  function sort(head) {
    const up = head.getAttribute("aria-sort") !== "ascending";
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
    if (table.classList.contains("ticdc-spread-out")) spread(table);
  }

  const left = (table) => [...table.tBodies[0].rows].filter((row) => !row.classList.contains("ticdc-out"));

  function counted(bar) {
    const table = tableOf(bar);
    const [n, all] = [left(table).length, table.tBodies[0].rows.length];
    bar.querySelector("output").textContent = `${n === all ? "" : `${n} of `}${all} ${all === 1 ? "row" : "rows"} on this page`;
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
      box.className = "ticdc-bars";
      box.title = bars.map(([text, n]) => `${text || "(empty)"}: ${n}`).join("\n");
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
    if (!(await copy(text))) return choose(table);
    button.classList.add("ticdc-copied");
    setTimeout(() => button.classList.remove("ticdc-copied"), DONE_MS);
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
    else if (ts) {
      choose(ts.querySelector("span") ?? ts);
      copy(said(ts));
    }
  });
  document.addEventListener("keydown", (event) => {
    const head = ["Enter", " "].includes(event.key) && event.target.closest?.(".ticdc-sorts th");
    if (!head) return;
    event.preventDefault(); // a blank would scroll
    sort(head);
  });
  const begun = () => document.querySelectorAll(".ticdc-tools").forEach(counted);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begun);
  else begun();
  document.addEventListener("input", ({ target }) => {
    if (target.matches?.(".ticdc-tools input")) filter(target);
  });
}
ticdcCopying();
