// Tables of class ticdc-sorts can be explored without a kernel: a click on a head sorts, the field above filters, the
// button beside it copies the rows that are shown, and a click on a timestamp copies it.
function ticdcCopying() {
  if (globalThis.ticdcCopies) return;
  globalThis.ticdcCopies = true;
  const DONE_MS = 1200;
  const looks = document.createElement("style");
  looks.textContent = `@media screen { .ticdc-tools[hidden] { display: flex } } .ticdc-tools { gap: 8px; align-items: center;
    font-size: 12px; margin: 4px 0 } .ticdc-tools input { font: inherit; padding: 1px 6px; width: 14em; max-width: 50%;
    background: transparent; color: inherit; border: 1px solid #8888; border-radius: 4px }
    .ticdc-tools button { font: inherit; padding: 1px 8px; opacity: .75; cursor: pointer } td.ticdc-ts { cursor: copy }
    .ticdc-sorts th { cursor: pointer } .ticdc-sorts th[aria-sort]::after { content: " ▲" }
    .ticdc-sorts th[aria-sort="descending"]::after { content: " ▼" } .ticdc-sorts tr.ticdc-out { display: none }
    .ticdc-sorts td.ticdc-ts small { display: block; opacity: .7; white-space: nowrap }
    .ticdc-tools button.ticdc-copied::after { content: " ✓" }`;
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
  const said = (cell) => (cell.querySelector("span") ?? cell).textContent.trim().replace(/\s+/g, " ");
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
    const rows = [...body.rows].map((row) => [said(row.cells[head.cellIndex]), row]);
    rows.sort(([a], [b]) => (up ? compared(a, b) : compared(b, a)));
    body.append(...rows.map(([, row]) => row));
  }

  function filter(input) {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [...tableOf(input.parentElement).tBodies[0].rows];
    for (const row of rows) row.classList.toggle("ticdc-out", !words.every((word) => row.textContent.toLowerCase().includes(word)));
    const left = rows.filter((row) => !row.classList.contains("ticdc-out")).length;
    input.parentElement.querySelector("output").textContent = words.length ? `${left} of ${rows.length} rows` : "";
  }

  async function copyRows(button) {
    const table = tableOf(button.parentElement);
    const rows = [...table.rows].filter((row) => !row.classList.contains("ticdc-out"));
    const text = rows.map((row) => [...row.cells].map(said).join("\t")).join("\n");
    if (!(await copy(text))) return choose(table);
    button.classList.add("ticdc-copied");
    setTimeout(() => button.classList.remove("ticdc-copied"), DONE_MS);
  }

  document.addEventListener("click", ({ target }) => {
    const [button, ts] = [target.closest?.("button.ticdc-copy"), target.closest?.("td.ticdc-ts")];
    const head = target.closest?.(".ticdc-sorts th");
    if (button) copyRows(button);
    else if (head) sort(head);
    else if (ts) {
      choose(ts.querySelector("span") ?? ts);
      copy(said(ts));
    }
  });
  document.addEventListener("keydown", (event) => {
    const head = event.key === "Enter" && event.target.closest?.(".ticdc-sorts th");
    if (head) sort(head);
  });
  document.addEventListener("input", ({ target }) => {
    if (target.matches?.(".ticdc-tools input")) filter(target);
  });
}
ticdcCopying();
