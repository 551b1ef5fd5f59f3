// Frames that a picture was made of: asked for when they are opened, copied by row and timestamp, downloaded whole.

function made(tag, text, attributes = {}) {
  const node = document.createElement(tag);
  node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function download(name, buffer) {
  const link = made("a", "", { download: name });
  link.href = URL.createObjectURL(new Blob([buffer]));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 20_000);
}

function fileButton(model, name, form, words) {
  const button = made("button", words, { type: "button", class: "ticdc-button", title: `all of ${name} as a file` });
  button.addEventListener("click", () => model.send({ kind: "file", name, form }));
  return button;
}

function folded(model, [name, n], open) {
  const words = name.replaceAll("_", " ");
  const box = made("details", "", { class: "ticdc-frame" });
  const most = model.get("shown");
  const cut = n > most ? `the first ${most} of ${n.toLocaleString("en")} rows` : `${n} ${n === 1 ? "row" : "rows"}`;
  const files = made("div", "", { class: "ticdc-files" });
  files.append(fileButton(model, name, "csv", "CSV"), fileButton(model, name, "parquet", "Parquet"));
  const place = made("div", "", { class: "ticdc-rows", tabindex: "0", role: "group", "aria-label": `table: ${words}` });
  box.append(made("summary", `${words} (${cut})`), files, place);
  box.addEventListener("toggle", () => {
    if (box.open) open.add(name);
    else open.delete(name);
    if (box.open) model.send({ kind: "rows", name });
  });
  box.dataset.name = name;
  box.open = open.has(name);
  return box;
}

function render({ model, el }) {
  el.classList.add("ticdc-evidence");
  const open = new Set();
  const boxes = () => [...el.querySelectorAll("details")];

  function drawn() {
    const names = model.get("names");
    const same = boxes().map((box) => box.querySelector("summary").textContent).join();
    const fresh = names.map((frame) => folded(model, frame, open));
    if (fresh.map((box) => box.querySelector("summary").textContent).join() !== same) el.replaceChildren(...fresh);
  }
  function heard(message, buffers) {
    if (message.kind === "file") return download(message.name, buffers[0]);
    if (message.kind === "changed") return boxes().forEach((b) => b.open && model.send({ kind: "rows", name: b.dataset.name }));
    const box = boxes().find((b) => b.dataset.name === message.name);
    if (box) box.querySelector(".ticdc-rows").innerHTML = message.html; // made and escaped by the kernel
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
