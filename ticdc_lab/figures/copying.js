// Who reads a table takes what it says along: a click on a timestamp copies it, the button at the end of a row the row.
function ticdcCopying() {
  if (globalThis.ticdcCopies) return;
  globalThis.ticdcCopies = true;
  const DONE_MS = 1200;
  const looks = document.createElement("style");
  looks.textContent = `@media screen { td.ticdc-copies[hidden] { display: table-cell } } td.ticdc-ts { cursor: copy }
    button.ticdc-copy { font-size: 11px; padding: 0 5px; min-width: 40px; cursor: pointer }
    button.ticdc-copy::before { content: "copy" } button.ticdc-copied::before { content: "✓" }`;
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

  async function copyRow(button) {
    const cells = [...button.closest("tr").cells].filter((cell) => !cell.contains(button));
    const text = cells.map((cell) => cell.textContent.trim().replace(/\s+/g, " ")).join("\t");
    if (!(await copy(text))) return choose(button.closest("tr"));
    button.classList.add("ticdc-copied");
    setTimeout(() => button.classList.remove("ticdc-copied"), DONE_MS);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("button.ticdc-copy");
    const ts = event.target.closest?.("td.ticdc-ts");
    if (button) copyRow(button);
    else if (ts) {
      choose(ts);
      copy(ts.textContent.trim());
    }
  });
}
ticdcCopying();
