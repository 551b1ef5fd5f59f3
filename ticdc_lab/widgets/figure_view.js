// One plotly figure in a live notebook: drawn in place, with what is under way, what was done and what is wrong.
// plotly.js comes from the kernel once a page, packed, and stays on globalThis for every later view.

const PAGE = (globalThis.ticdcLab ??= { plotly: null, asking: null });
PAGE.here ??= new Promise((resolve) => (PAGE.arrived = resolve));
const ASK_AGAIN_MS = 20_000;
const SEEN_MS = 250;
const TICK_MS = 100;
const PLAYS = ["play or pause", "stop, and back to the beginning", "play again and again"]; // in the order of ipywidgets
const LATE = "the kernel is busy or gone and has not sent plotly.js";

async function unpacked(buffer) {
  const packed = new Blob([buffer]).stream();
  return new Response(packed.pipeThrough(new DecompressionStream("gzip"))).text();
}

function evaluated(code) {
  const [before, module] = [globalThis.Plotly, { exports: {} }];
  new Function("module", code)(module);
  globalThis.Plotly = before; // the page may have another version of its own
  PAGE.plotly = module.exports;
  PAGE.arrived();
}

// The first view of a kernel brings plotly.js along: a kernel that runs the next cells could not answer.
async function brought(model) {
  const packed = model.get("library");
  if (!packed?.byteLength) return;
  if (!PAGE.plotly) evaluated(await unpacked(packed));
  model.set("library", null); // so that nobody keeps it
  model.save_changes();
}

function asked(model) {
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(LATE)), ASK_AGAIN_MS);
    const heard = (message, buffers) => {
      if (message.kind !== "plotly.js") return;
      model.off("msg:custom", heard);
      clearTimeout(late);
      unpacked(buffers[0]).then(evaluated).then(resolve, reject);
    };
    model.on("msg:custom", heard);
    model.send({ kind: "plotly.js" });
  });
}

async function library(model) {
  await brought(model);
  if (!PAGE.plotly) {
    PAGE.asking ??= asked(model).finally(() => (PAGE.asking = null));
    await Promise.race([PAGE.here, PAGE.asking]);
  }
  return PAGE.plotly;
}

// ---------------------------------------------------------------------------------------------------------- theme

function isDark() {
  const { jpThemeLight, vscodeThemeKind } = document.body.dataset;
  if (jpThemeLight) return jpThemeLight === "false";
  if (vscodeThemeKind) return vscodeThemeKind.includes("dark");
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

function onTheme(changed) {
  const watch = new MutationObserver(changed);
  const query = matchMedia("(prefers-color-scheme: dark)");
  watch.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind"] });
  query.addEventListener("change", changed);
  return () => {
    watch.disconnect();
    query.removeEventListener("change", changed);
  };
}

// ----------------------------------------------------------------------------------------------------------- parts

function made(tag, className, attributes = {}) {
  const node = Object.assign(document.createElement(tag), { className });
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function button(text, title, pressed) {
  const node = made("button", "ticdc-button", { type: "button", title });
  node.textContent = text;
  node.addEventListener("click", pressed);
  return node;
}

function download(name, text) {
  const link = made("a", "");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), ASK_AGAIN_MS);
}

function chooser(model) {
  const input = made("input", "ticdc-file", { type: "file", accept: ".json,application/json", tabindex: "-1" });
  input.addEventListener("change", async () => {
    const [file] = input.files;
    if (file) model.send({ kind: "open", name: file.name, text: await file.text() });
    input.value = "";
  });
  return input;
}

// The line between the controls and the figure: what runs and for how long, or what was done; cancel, save, open.
function statusLine(model) {
  const line = made("div", "ticdc-status");
  const said = made("span", "ticdc-said", { role: "status", "aria-live": "polite" });
  const clock = made("span", "ticdc-clock", { "aria-hidden": "true" });
  const cancel = button("cancel", "give up what runs; the figure stays", () => model.send({ kind: "cancel" }));
  const file = chooser(model);
  const save = button("save", "save what the controls say as a small file", () => model.send({ kind: "save" }));
  const open = button("open", "open what was saved", () => file.click());
  line.append(said, clock, cancel, save, open, file);
  let since = 0;
  let timer = 0;

  function tick() {
    const ms = since ? performance.now() - since : 0;
    const busy = ms >= SEEN_MS; // what is done in a blink does not flicker
    const words = busy ? model.get("busy") : model.get("status");
    if (said.textContent !== words) said.textContent = words;
    clock.textContent = `${(ms / 1000).toFixed(1)} s`;
    cancel.hidden = clock.hidden = !busy;
    line.classList.toggle("ticdc-is-busy", busy);
  }
  function told() {
    save.hidden = open.hidden = !model.get("keeps_state");
    line.hidden = !model.get("busy") && !model.get("status") && !model.get("keeps_state");
    if (!model.get("busy")) clearInterval(timer);
    else if (!since) timer = setInterval(tick, TICK_MS);
    since = model.get("busy") ? since || performance.now() : 0;
    tick();
  }
  told();
  return { line, told, stop: () => clearInterval(timer) };
}

// What is wrong, in words; of a defect also the trace, folded.
function problemBox(model) {
  const box = made("div", "ticdc-problem", { role: "alert" });
  function told() {
    const { message, hint, trace } = model.get("problem");
    box.replaceChildren();
    box.hidden = !message;
    if (!message) return;
    const words = made("div", "ticdc-message");
    words.textContent = message;
    box.append(words);
    if (hint) {
      const more = made("div", "ticdc-hint");
      more.textContent = hint;
      box.append(more);
    }
    if (trace) {
      const folded = made("details", "");
      const head = made("summary", "");
      head.textContent = "the trace, for a report of this defect";
      const text = made("pre", "");
      text.textContent = trace;
      folded.append(head, text);
      box.append(folded);
    }
  }
  told();
  return { box, told };
}

// ---------------------------------------------------------------------------------------------------------- figure

function choose(model, curve, point, column = "") {
  const n = (model.get("clicked").n ?? 0) + 1;
  model.set("clicked", { curve, point, column, n });
  model.save_changes();
}

function clickedPoint(model, event) {
  const [point] = event.points ?? [];
  if (!point) return;
  const at = point.pointNumber ?? point.pointIndex;
  choose(model, point.curveNumber, Array.isArray(at) ? at[0] * point.fullData.z[0].length + at[1] : at);
}

function drawer(model, plot) {
  let queue = Promise.resolve();
  let listening = false;
  let gone = false;
  let width = 0;
  let high = 0;
  let hidden = false;

  async function drawn(json) {
    const Plotly = await library(model);
    hidden = !(await visible(plot));
    if (hidden || gone || json !== model.get("figure_json")) return; // a later one is in the queue
    const { data, layout, frames } = JSON.parse(json);
    const templates = model.get("templates");
    const shown = { ...layout, template: isDark() ? templates.dark : templates.light, autosize: true };
    delete shown.width;
    if (!plot.dataset.drawn) plot.replaceChildren();
    plot.ticdcChosen = (curve, row, column) => choose(model, curve, row, column);
    await ticdcFit.draw(Plotly, plot, { data, layout: shown, frames: frames ?? [], config: model.get("config") }); // fit.js
    if (!plot.ticdcInWords) fitted();
    plot.dataset.drawn = String(Number(plot.dataset.drawn ?? 0) + 1);
    named(plot); // each time: controls may come after the first figure
    if (plot.ticdcInWords) listening = false;
    if (listening || plot.ticdcInWords) return;
    listening = true;
    plot.on("plotly_click", (event) => {
      if (event.points?.[0]?.data.type !== "icicle") clickedPoint(model, event);
    });
    plot.on("plotly_icicleclick", (event) => clickedPoint(model, event)); // also of boxes with boxes in them
  }

  // Lines that a narrow page breaks make a figure higher than it was made: the box has room for the most of them.
  function fitted() {
    if (plot.clientWidth !== width) [width, high] = [plot.clientWidth, 0];
    high = Math.max(high, plot.layout.height);
    room();
  }

  function room() {
    plot.style.minHeight = plot.ticdcInWords ? "" : `${high || model.get("height")}px`;
  }

  function draw() {
    const json = model.get("figure_json");
    if (!json || gone) return;
    queue = queue
      .then(() => drawn(json))
      .catch((error) => (error.message === LATE ? waiting(plot) && draw() : failed(plot, error)));
  }

  return {
    room,
    draw,
    resize() {
      if (gone || !plot.clientWidth) return;
      if (hidden) return draw();
      if (!plot.dataset.drawn || plot.ticdcInWords || plot.clientWidth === width) return;
      if (!plot.layout.meta?.finding) PAGE.plotly.Plots.resize(plot);
      queue = queue.then(() => ticdcFit(PAGE.plotly, plot)).then(fitted).catch((error) => failed(plot, error));
    },
    stop() {
      gone = true;
      if (plot.dataset.drawn) PAGE.plotly.purge(plot);
      plot.ticdcSteps?.remove();
    },
  };
}

// While JupyterLab changes its theme its page is hidden for a moment, and what is drawn then is measured as nothing.
async function visible(plot) {
  for (let frames = 0; !plot.clientWidth && frames < 60; frames++) await new Promise(requestAnimationFrame);
  return plot.clientWidth > 0;
}

// ipywidgets gives the handle of a slider, the field beside it, and what plays, no name that a screen reader could say.
function named(plot) {
  for (const player of plot.closest(".ticdc-panel")?.querySelectorAll(".widget-play") ?? [])
    [...player.querySelectorAll("button")].forEach((node, i) => (node.title ||= PLAYS[i] ?? ""));
  for (const handle of plot.closest(".ticdc-panel")?.querySelectorAll(".noUi-handle") ?? []) {
    const label = handle.closest(".jupyter-widgets")?.querySelector(".widget-label");
    if (label) handle.setAttribute("aria-label", label.textContent);
  }
  for (const field of plot.closest(".ticdc-panel")?.querySelectorAll(".widget-readout[contenteditable=true]") ?? []) {
    const label = field.closest(".jupyter-widgets")?.querySelector(".widget-label");
    field.setAttribute("role", "textbox");
    field.setAttribute("aria-label", `${label?.textContent ?? ""}, to type`);
  }
}

function waiting(plot) {
  plot.textContent = "The figure is drawn as soon as the kernel is free.";
  return true;
}

function failed(plot, error) {
  console.error("ticdc_lab:", error);
  if (!plot.dataset.drawn) plot.textContent = `The figure cannot be drawn: ${error.message}`;
}

function render({ model, el }) {
  el.classList.add("ticdc-figure");
  const { line, told: status, stop } = statusLine(model);
  const { box, told: problem } = problemBox(model);
  const plot = made("div", "ticdc-plot", { role: "figure", tabindex: "0" });
  el.append(line, box, plot);
  const figure = drawer(model, plot);

  const looks = () => {
    figure.room();
    plot.setAttribute("aria-label", model.get("description"));
    plot.setAttribute("aria-busy", String(Boolean(model.get("busy"))));
    plot.classList.toggle("ticdc-stale", model.get("stale"));
  };
  const heard = (message) => {
    if (message.kind === "download") download(message.name, message.text);
  };
  const handlers = [
    ["change:figure_json change:templates", figure.draw],
    ["change:height change:description change:busy change:stale", looks],
    ["change:busy change:status change:keeps_state", status],
    ["change:problem", problem],
    ["msg:custom", heard],
  ];
  for (const [events, handler] of handlers) for (const name of events.split(" ")) model.on(name, handler);
  const unwatch = onTheme(figure.draw);
  const sized = new ResizeObserver(() => figure.resize());
  sized.observe(plot);
  looks();
  figure.draw();

  return () => {
    for (const [events, handler] of handlers) for (const name of events.split(" ")) model.off(name, handler);
    unwatch();
    sized.disconnect();
    stop();
    figure.stop();
  };
}

function initialize({ model }) {
  brought(model).catch((error) => console.error("ticdc_lab:", error));
}

export default { initialize, render };
