// The tables behind a picture, all their rows: the kernel sorts, filters and sends a page at a time.

const CHOSEN = ["table", "partition"]; // a click on such a cell chooses it everywhere
const BAR_PX = 18;

function made(tag, text = "", attributes = {}) {
  const node = document.createElement(tag);
  node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function button(text, title, pressed) {
  const node = made("button", text, { type: "button", class: "ticdc-button", title });
  node.addEventListener("click", pressed);
  return node;
}

function download(name, buffer) {
  const link = made("a", "", { download: name });
  link.href = URL.createObjectURL(new Blob([buffer]));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 20_000);
}

// How the values of a column are spread: a bar each, said by who points at it.
function spread({ name, bars }) {
  const most = Math.max(1, ...bars.map(([, n]) => n));
  const title = bars.map(([v, n]) => `${v}: ${n.toLocaleString("en")}`).join("\n");
  const box = made("span", "", { class: "ticdc-spread", title, ...(title && { tabindex: "0", role: "img", "aria-label": title }) });
  for (const [, n] of bars) {
    const bar = made("i");
    bar.style.height = `${Math.max(n ? 1 : 0, Math.round((BAR_PX * n) / most))}px`;
    box.append(bar);
  }
  return box;
}

function folded(model, [name, n], states) {
  const words = name.replaceAll("_", " ");
  const state = states.get(name) ?? { filters: {}, sort: "", down: false, page: 0, open: false };
  states.set(name, state);
  const box = made("details", "", { class: "ticdc-frame" });
  const place = made("div", "", { class: "ticdc-rows", tabindex: "0", role: "group", "aria-label": `table: ${words}` });
  const said = made("span", "", { role: "status" });
  const ask = (more = {}) => model.send({ kind: "rows", name, filters: state.filters, sort: state.sort, down: state.down, page: state.page, ...more });
  const to = (page) => ((state.page = page), ask());
  const copy = (what) => async ({ target }) => {
    try {
      await navigator.clipboard.writeText(state[what] ?? "");
      target.classList.add("ticdc-copied");
      setTimeout(() => target.classList.remove("ticdc-copied"), 1200);
    } catch {
      said.textContent = state[what] ?? "";
    }
  };
  const first = button("«", "the first page", () => to(0));
  const back = button("‹", "the page before", () => to(state.page - 1));
  const on = button("›", "the next page", () => to(state.page + 1));
  const last = button("»", "the last page", () => to(state.last));
  const codes = {
    sql: button("copy as SQL", "the query that gives these rows, for log.sql", copy("sql")),
    python: button("copy as Python", "the call that gives these rows", copy("python")),
  };
  const tools = made("div", "", { class: "ticdc-files" });
  tools.append(
    first, back, said, on, last,
    button("CSV", `all rows of ${words} that are left, as a file`, () => ask({ kind: "file", form: "csv" })),
    button("Parquet", `all rows of ${words} that are left, as a file`, () => ask({ kind: "file", form: "parquet" })),
    ...Object.values(codes),
  );
  box.append(made("summary", `${words} (${n.toLocaleString("en")} ${n === 1 ? "row" : "rows"})`), tools, place);
  box.addEventListener("toggle", () => {
    state.open = box.open;
    if (box.open) ask();
  });

  function head(columns) {
    const row = made("tr");
    for (const column of columns) {
      const cell = made("th", "", { scope: "col" });
      const sort = button(column.name, "sort by it", () => {
        state.down = state.sort === column.name && !state.down;
        Object.assign(state, { sort: column.name, page: 0 });
        ask();
      });
      if (state.sort === column.name) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      const filter = made("input", "", { type: "search", "aria-label": `filter ${column.name}`, placeholder: "filter", title: "a part of it, or > 5, <= 5, = 5, != 5, = NULL, != NULL; = alone is empty text", "data-lm-suppress-shortcuts": "true" });
      filter.value = state.filters[column.name] ?? "";
      const applied = () => {
        if (filter.value === (state.filters[column.name] ?? "")) return;
        state.filters = { ...state.filters, [column.name]: filter.value };
        state.page = 0;
        ask();
      };
      filter.addEventListener("change", applied);
      filter.addEventListener("keydown", ({ key }) => key === "Enter" && applied()); // JupyterLab's own Enter ends no field
      cell.append(sort, spread(column), filter);
      row.append(cell);
    }
    return row;
  }

  box.ticdcHeard = (message) => {
    if (message.kind === "problem") return void (said.textContent = message.message);
    if (message.kind === "bars") return [...place.querySelectorAll(".ticdc-spread")].forEach((box, i) => message.columns[i] && box.replaceWith(spread(message.columns[i])));
    Object.assign(state, { sql: message.sql, python: message.python });
    for (const [what, copies] of Object.entries(codes)) copies.disabled = !state[what];
    state.last = Math.ceil(message.n / message.shown) - 1;
    const before = state.page * message.shown;
    const seen = Math.min(message.n, before + message.shown);
    said.textContent = message.n ? `${(before + 1).toLocaleString("en")} to ${seen.toLocaleString("en")} of ${message.n.toLocaleString("en")}` : "no row is left";
    first.disabled = back.disabled = state.page === 0;
    on.disabled = last.disabled = state.page >= state.last;
    const table = made("table");
    const body = made("tbody");
    body.innerHTML = message.html; // made and escaped by the kernel
    table.append(made("thead"), body);
    table.tHead.append(head(message.columns));
    for (const [i, { name: column }] of message.columns.entries()) {
      if (!CHOSEN.includes(column)) continue;
      for (const { cells } of body.rows) if (cells[i].dataset.whole !== "") cells[i].className = "ticdc-chooses";
    }
    const choose = ({ target }) => {
      const cell = target.closest("td.ticdc-chooses");
      if (cell) model.send({ kind: "choose", name, column: message.columns[cell.cellIndex].name, value: cell.dataset.whole ?? cell.textContent });
    };
    body.addEventListener("click", choose);
    const focused = document.activeElement?.getAttribute("aria-label");
    place.replaceChildren(table);
    if (focused?.startsWith("filter ")) [...place.querySelectorAll("input")].find((i) => i.getAttribute("aria-label") === focused)?.focus();
  };
  box.ticdcAgain = () => box.open && to(0);
  box.dataset.name = name;
  box.open = state.open;
  return box;
}

function render({ model, el }) {
  el.classList.add("ticdc-evidence");
  const states = new Map();
  const boxes = () => [...el.querySelectorAll("details")];

  function drawn() {
    const names = model.get("names");
    const same = boxes().map((box) => box.querySelector("summary").textContent).join();
    const fresh = names.map((frame) => folded(model, frame, states));
    if (fresh.map((box) => box.querySelector("summary").textContent).join() !== same) el.replaceChildren(...fresh);
  }
  function heard(message, buffers) {
    if (message.kind === "file") return download(message.name, buffers[0]);
    if (message.kind === "changed") return boxes().forEach((box) => box.ticdcAgain());
    boxes().find((box) => box.dataset.name === message.name)?.ticdcHeard(message);
  }
  model.on("change:names", drawn);
  model.on("msg:custom", heard);
  drawn();
  return () => {
    model.off("change:names", drawn);
    model.off("msg:custom", heard);
  };
}

export default { render };
