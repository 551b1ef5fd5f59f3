// Fits a figure of ticdc_lab into the width that it has. plotly breaks no lines, draws controls that no key reaches, and
// puts legends beside the plot, of which nothing is left on a phone. Here titles and notes break, the legend stands below
// the plot, sliders and menus are the page's own controls, and the plot keeps its height and at least PLOT_PX of width and height.
var ticdcFit = globalThis.ticdcFit ?? (() => {
  const EDGE = 18; // left of the title and of the note
  const TOOLS = 130; // the toolbar at the right of the title, which a narrow figure has not
  const FADE = 30; // what fades at the side of a figure that scrolls
  const SHIFT = FADE - EDGE; // so that what stays does not fade
  const SIGN = 45; // left of a name in the legend
  const TITLE_TOP = 16;
  const LINE = { title: 20, note: 17 };
  const PLOT_PX = 240;
  const NARROW = 560;
  const WHOLE_CHARS = 44;
  const UNITS = /(?<![\w.])([\d,.]+ (?:%|(?:s|ms|µs|min|h|[KMGT]iB)\b))/;
  const BREAKS = /(?:^|\s)\/\w|[^\s/.][-={}()[\]"'?!%|]|[-={}()[\]"'?!%|][^\s/.]/;
  const MOST_TEXTS = 300;
  const APART = 3; // pixels between two texts, else they read as one
  const WIDEST_PX = 1100; // what is crowded even then stays as narrow as its page
  const pen = document.createElement("canvas").getContext("2d");

  const plain = (text) => new DOMParser().parseFromString(text, "text/html").body.textContent;
  const lines = (text) => (text ? text.split("<br>").length : 0);
  const titleOf = (gd) => gd.layout.title?.text ?? "";

  // Blanks, but for those inside markup and those between a number and its unit.
  const WORD_ENDS = / +(?![^<]*>|(?<=\d +)(?:%|(?:s|ms|min|h|[KMGT]iB)\b))/;

  function wrapped(text, px, font) {
    pen.font = font;
    const out = [];
    let line = "";
    for (const word of text.replaceAll("<br>", " ").split(WORD_ENDS)) {
      const longer = line ? `${line} ${word}` : word;
      if (line && pen.measureText(plain(longer)).width > px) out.push(line);
      line = line && out.at(-1) === line ? word : longer;
    }
    return [...out, line].join("<br>");
  }

  // Texts as they are to be for a width, wherever the figure has them: in its layout, frames and menus.
  function rewrite(gd, breakTitle, breakNote, place) {
    const note = (a) => (a.name === "note" ? { ...a, text: breakNote(a), ...place } : a);
    const layouts = (gd._transitionData?._frames ?? []).map((f) => f.layout ?? {});
    for (const layout of layouts) {
      if (layout.title?.text) layout.title.text = breakTitle(layout.title.text);
      if (layout.annotations) layout.annotations = layout.annotations.map(note);
    }
    for (const menu of gd.layout.updatemenus ?? []) {
      for (const { method, args } of menu.buttons ?? []) {
        if (method !== "update" || !args[1]) continue;
        if (args[1]["title.text"]) args[1]["title.text"] = breakTitle(args[1]["title.text"]);
        if (args[1].annotations) args[1].annotations = args[1].annotations.map(note);
        layouts.push({ title: { text: args[1]["title.text"] }, annotations: args[1].annotations });
      }
    }
    const title = breakTitle(titleOf(gd));
    const annotations = (gd.layout.annotations ?? []).map(note);
    layouts.push({ title: { text: title }, annotations });
    const most = (of) => Math.max(0, ...layouts.flatMap(of).map(lines));
    return {
      title, annotations,
      titleLines: most((l) => l.title?.text ?? []), // none where the page says the finding itself
      noteLines: most((l) => (l.annotations ?? []).filter((a) => a.name === "note").map((a) => a.text)),
    };
  }

  // What a figure was made with, less the room of controls that the page has instead.
  function asMade(gd) {
    const { annotations = [], margin, height, sliders = [], updatemenus = [] } = gd.layout;
    const note = annotations.find((a) => a.name === "note");
    const below = Math.max(0, ...sliders.map((s) => margin.b - (s.pad?.t ?? margin.b)));
    const above = updatemenus.some((m) => m.y === 1) ? 14 + (updatemenus[0].pad?.b ?? 0) : 0;
    const [top, bottom] = [margin.t - above, margin.b - below];
    return {
      top, bottom, height: Math.max(height - above - below, top + PLOT_PX + bottom), right: margin.r ?? 30,
      noteLines: note ? lines(note.text) : 1, shift: note?.yshift ?? 0,
    };
  }

  const boxes = (gd, css) =>
    [...gd.querySelectorAll(css)].map((node) => [node, node.getBoundingClientRect()]).filter(([, box]) => box.height);
  const isNote = (gd, node) => gd.layout.annotations?.[node.dataset.index]?.name === "note";

  // How far what stands above the plot reaches into the title; less than nothing where there is room to spare.
  function intrusion(gd, titleLines) {
    const frame = gd.getBoundingClientRect();
    const [free, plot] = [TITLE_TOP + LINE.title * titleLines + 10, gd._fullLayout._size.t];
    const above = boxes(gd, ".infolayer .annotation, .xaxislayer-above text, .g-xtitle, .colorbar")
      .filter(([node, box]) => box.top - frame.top < plot && !isNote(gd, node))
      .map(([, box]) => box.top - frame.top);
    return Math.ceil(free - Math.min(plot - 8, ...above));
  }

  // How far below the plot its axes, and names in their place, end, and how far they, or the legend, reach into the note.
  function beneath(gd) {
    const frame = gd.getBoundingClientRect();
    const { t, h } = gd._fullLayout._size;
    const ends = (css) => boxes(gd, css).map(([, box]) => box.bottom - frame.top - t - h);
    const texts = boxes(gd, ".infolayer .annotation");
    const note = texts.find(([node]) => isNote(gd, node));
    const names = texts.filter((text) => text !== note).map(([, box]) => box.bottom - frame.top - t - h);
    const axes = Math.max(0, ...ends(".xaxislayer-above, .g-xtitle, .g-x2title, .g-x3title"), ...names);
    const low = Math.max(axes, ...ends(".legend"));
    return { axes, sunk: note ? Math.ceil(low + 10 - (note[1].top - frame.top - t - h)) : 0 };
  }

  // By how many pixels texts touch each other, or are cut at a side.
  function crowded(gd) {
    const frame = gd.querySelector(".main-svg").getBoundingClientRect();
    const seen = ([node, box]) => box.width && !node.closest(".hoverlayer") && Number(getComputedStyle(node).opacity) > 0.05;
    const texts = boxes(gd, ".main-svg text").filter(seen).slice(0, MOST_TEXTS);
    const { l, w } = gd._fullLayout._size;
    let px = 0;
    texts.forEach(([node, a], i) => {
      const [left, right] = node.closest(".scatterlayer") ? [l, l + w].map((x) => frame.left + x) : [frame.left, frame.right];
      px += Math.max(0, left - a.left - 2) + Math.max(0, a.right - right - 2);
      for (const [, b] of texts.slice(i + 1)) {
        const [over, deep] = [Math.min(a.right, b.right) - Math.max(a.left, b.left), Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top)];
        if (over > -APART && deep > 4) px += over + APART;
      }
    });
    return px;
  }

  function sizes(made, titleLines, noteLines, more, deeper) {
    const top = made.top + more;
    const bottom = made.bottom + LINE.note * (noteLines - made.noteLines) + deeper;
    const height = made.height + more + bottom - made.bottom;
    return { "margin.t": top, "margin.b": bottom, "title.pad.t": titleLines > 1 ? 26 : 16, height };
  }

  // A figure that needs more width than there is scrolls in its box, by the arrow keys too; where there is more fades. Its
  // title, note and legend stay.
  function scrolls(gd, width) {
    const narrow = width > gd.clientWidth;
    gd.style.overflowX = narrow ? "auto" : "";
    gd.style.overflowY = narrow ? "hidden" : "";
    if (narrow) gd.tabIndex = 0;
    if (!gd.ticdcFades) gd.addEventListener("scroll", (gd.ticdcFades = () => fade(gd)));
  }

  function fade(gd) {
    const [left, right] = [gd.scrollLeft, gd.scrollWidth - gd.clientWidth - gd.scrollLeft].map((px) => px > 1);
    const stops = `${left ? "transparent" : "#000"}, #000 ${FADE}px calc(100% - ${FADE}px), ${right ? "transparent" : "#000"}`;
    gd.style.maskImage = left || right ? `linear-gradient(to right, ${stops})` : "";
    const stays = [...gd.querySelectorAll(".infolayer :is(.g-gtitle, .legend, .annotation)")].filter((node) => !node.matches(".annotation") || isNote(gd, node));
    for (const node of stays) node.style.translate = left ? `${gd.scrollLeft + SHIFT}px` : "";
  }

  // ---------------------------------------------------------------------------------------------------- controls

  const STYLE = `.ticdc-steps{display:flex;flex-flow:row wrap;gap:4px 14px;align-items:center;padding:2px 18px 12px;
    font-size:13px}.ticdc-steps label{display:flex;flex:0 1 auto;gap:8px;align-items:center}
    .ticdc-steps label:has(input){flex:1 1 290px;max-width:620px}.ticdc-steps span{white-space:nowrap}.ticdc-steps input{flex:1 1 120px;min-width:60px}
    .ticdc-steps output{min-width:5em;font-variant-numeric:tabular-nums;white-space:nowrap}
    .ticdc-steps :is(button,select){font:inherit;color:inherit;background:transparent;border:1px solid #8888;
    border-radius:4px;padding:2px 9px}.ticdc-steps option{color:#1d1d1f;background:#fff}@media print{.ticdc-steps{display:none}}`;

  const made = (tag, settings = {}) => Object.assign(document.createElement(tag), settings);
  const styled = (id, textContent) => document.getElementById(id) ?? document.head.append(made("style", { id, textContent }));
  const frameOf = (step) => step.args?.[0]?.[0];

  function shown(gd, label, slider, at) {
    slider.active = at;
    const [input, output] = [label.querySelector("input"), label.querySelector("output")];
    input.value = at;
    output.textContent = slider.steps[at]?.label ?? "";
    input.setAttribute("aria-valuetext", output.textContent);
  }

  // Sliders of a page that say the same of the same choice move together.
  function alike(gd, prefix, word) {
    const page = gd.closest(".jp-Notebook") ?? document;
    for (const other of page.querySelectorAll(".js-plotly-plot")) {
      const slider = other !== gd && !playing(other) && other.layout?.sliders?.[0];
      if (!slider || (slider.currentvalue?.prefix ?? "") !== prefix) continue;
      const at = slider.steps.findIndex((step) => step.label === word);
      if (at >= 0 && at !== (slider.active ?? 0)) other.ticdcGo?.(at);
    }
  }
  const playing = (gd) => (gd.layout?.updatemenus ?? []).some((menu) => menu.type === "buttons");

  function controls(Plotly, gd) {
    const { sliders = [], updatemenus = [] } = gd.layout;
    if (!sliders.length && !updatemenus.length) return gd.ticdcSteps?.remove();
    styled("ticdc-steps", STYLE);
    const bar = made("div", { className: "ticdc-steps" });
    for (const menu of updatemenus) {
      const pressed = (at) => {
        const { method, args } = menu.buttons[at];
        menu.active = at;
        const hidden = (args[1]?.sliders ?? []).map((s) => ({ ...s, visible: false }));
        if (method === "update") return Plotly.update(gd, args[0], { ...args[1], ...(hidden.length && { sliders: hidden }) }).then(() => controls(Plotly, gd));
        return Plotly[method](gd, ...args);
      };
      if (menu.type === "buttons")
        bar.append(...menu.buttons.map((b, i) => made("button", { type: "button", textContent: b.label, onclick: () => pressed(i) })));
      else {
        const select = made("select", { onchange: () => pressed(select.selectedIndex) });
        select.setAttribute("aria-label", "what is drawn");
        select.append(...menu.buttons.map((b) => made("option", { textContent: plain(b.label) })));
        select.selectedIndex = menu.active ?? 0;
        bar.append(select);
      }
    }
    for (const slider of sliders) {
      const prefix = slider.currentvalue?.prefix ?? "";
      const label = made("label");
      const input = made("input", { type: "range", min: 0, max: slider.steps.length - 1, step: 1 });
      input.setAttribute("aria-label", prefix.trim().replace(/:$/, "") || "step");
      label.append(made("span", { textContent: prefix }), made("output"), input);
      const go = (at) => (shown(gd, label, slider, at), Plotly[slider.steps[at].method](gd, ...slider.steps[at].args));
      input.addEventListener("input", () => {
        go(Number(input.value));
        if (!playing(gd)) alike(gd, prefix, slider.steps[input.value].label);
      });
      gd.ticdcGo = go;
      gd.ticdcAt = (name) => {
        const at = slider.steps.findIndex((step) => frameOf(step) === name);
        if (at >= 0) shown(gd, label, slider, at);
      };
      shown(gd, label, slider, slider.active ?? 0);
      bar.append(label);
    }
    if (!gd.ticdcPlays && gd.on) {
      gd.ticdcPlays = true;
      gd.on("plotly_animatingframe", ({ name }) => gd.ticdcAt?.(name));
    }
    gd.ticdcSteps?.remove();
    gd.after((gd.ticdcSteps = bar));
  }

  // Tab reaches each line of the legend, as it does plotly's buttons: Enter or Space presses it. Where a button is for the
  // mouse to draw with, its keys stand in its words: zoom by + and -, move by the arrows.
  const DRAWS = { zoom: "Zoom (keys: + and -)", pan: "Pan (arrow keys)" };
  const KEYS = {
    "ticdc-keys": "Arrow keys go through what is drawn, Enter chooses it, Escape leaves it.",
    "ticdc-legend-keys": "Shift and Enter shows it alone, as a double click does.",
  };
  const KEYED = `.js-plotly-plot.js-plotly-plot:focus-visible,.js-plotly-plot.js-plotly-plot :is(.modebar-btn, .legend .traces, .legendtoggle):focus-visible{outline:2px solid #d55e00;outline-offset:1px}
    .js-plotly-plot.js-plotly-plot .ticdc-ring{position:absolute;width:16px;height:16px;transform:translate(-50%,-50%);border:3px solid #d55e00;box-shadow:0 0 0 2px #fff,inset 0 0 0 1px #fff;border-radius:50%;pointer-events:none}
    .ticdc-over text{paint-order:stroke;stroke:var(--ticdc-paper);stroke-width:4px;stroke-linejoin:round}
    .ticdc-unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
    .js-plotly-plot .modebar-btn:focus-visible::before,.js-plotly-plot .modebar-btn:focus-visible::after{display:block!important;opacity:1!important}`;
  // JupyterLab takes the keys of whatever has the focus and is not text, to move between cells; what bears this mark keeps its keys.
  document.addEventListener("focusin", ({ target }) => {
    if (target.closest?.("[class*='ticdc-']")) target.setAttribute("data-lm-suppress-shortcuts", "true");
  });
  const STEPS = { "+": [0, 0, 0.8], "=": [0, 0, 0.8], "-": [0, 0, 1.25], ArrowLeft: [-0.1, 0, 1], ArrowRight: [0.1, 0, 1], ArrowUp: [0, 0.1, 1], ArrowDown: [0, -0.1, 1] };

  function keyed(Plotly, gd) {
    styled("ticdc-keyed", KEYED);
    if (gd.ticdcKeyed !== gd._ev) {
      const again = () => keyed(Plotly, gd);
      if (!gd.ticdcKeyed) {
        gd.addEventListener("keydown", (event) => (event.target === gd ? pointed : pressed)(Plotly, gd, event));
        gd.addEventListener("focusout", () => left(Plotly, gd));
      }
      for (const name of ["plotly_afterplot", "plotly_relayout", "plotly_restyle"]) gd.on(name, again);
      for (const name of ["plotly_afterplot", "plotly_animated"]) gd.on(name, () => gd.ticdcMark && ringed(gd));
      gd.ticdcKeyed = gd._ev; // another one after a purge
    }
    gd.tabIndex = 0;
    gd.setAttribute("role", "figure");
    if (!gd.hasAttribute("aria-label")) gd.setAttribute("aria-label", plain(gd.layout.meta?.finding ?? ""));
    for (const [id, textContent] of Object.entries(KEYS)) if (!document.getElementById(id)) document.body.append(made("p", { id, hidden: true, textContent }));
    gd.setAttribute("aria-describedby", "ticdc-keys");
    for (const line of gd.querySelectorAll(".legend .traces")) {
      line.tabIndex = 0;
      line.setAttribute("role", "button");
      line.setAttribute("aria-label", line.textContent.trim());
      line.setAttribute("aria-pressed", line.__data__?.[0]?.trace.visible === true);
      line.setAttribute("aria-describedby", "ticdc-legend-keys");
    }
    gd.style.setProperty("--ticdc-paper", gd._fullLayout.paper_bgcolor); // what is written over lines is read
    for (const { uid, textfont } of gd._fullData)
      if (textfont?.color === gd._fullLayout.font.color) gd.querySelector(`.scatterlayer .trace${uid}`)?.classList.add("ticdc-over");
    for (const tool of gd.querySelectorAll(".modebar-btn[data-attr=dragmode]")) {
      const words = DRAWS[tool.dataset.val];
      if (words) [tool.dataset.title, tool.ariaLabel] = [words, words];
      tool.setAttribute("aria-pressed", tool.classList.contains("active"));
    }
  }

  function pressed(Plotly, gd, event) {
    const [line, tool] = [".legend .traces", ".modebar-btn"].map((css) => event.target.closest(css));
    const step = tool && (/^Arrow/.test(event.key) ? "pan" : "zoom") === tool.dataset.val && STEPS[event.key];
    if (!step && !(line && ["Enter", " "].includes(event.key))) return;
    event.preventDefault();
    const click = ["mousedown", "mouseup"];
    if (line) for (const kind of event.shiftKey ? [...click, ...click] : click) line.querySelector(".legendtoggle").dispatchEvent(new MouseEvent(kind));
    else Plotly.relayout(gd, moved(gd._fullLayout, ...step));
  }

  // What is drawn, as a pointer finds it: where each mark is, and how plotly names it.
  function marksOf(gd) {
    const out = [];
    const frame = gd.querySelector(".svg-container").getBoundingClientRect();
    const put = (mark, x, y) => out.push({ ...mark, x, y });
    for (const [curveNumber, cd] of gd.calcdata.entries()) {
      const trace = cd[0]?.trace;
      if (trace?.visible !== true || ["skip", "none"].includes(trace.hoverinfo)) continue;
      if (trace.type === "icicle") {
        for (const [node, box] of boxes(gd, ".iciclelayer .slice"))
          put({ curveNumber, node, pointNumber: node.__data__.data.data.i }, box.left - frame.left + box.width / 2, box.top - frame.top + box.height / 2);
        continue;
      }
      const subplot = trace.xaxis + trace.yaxis;
      const { xaxis, yaxis } = gd._fullLayout._plots[subplot] ?? {};
      const at = (pointNumber, x, y) => {
        const [px, py] = [xaxis.c2p(x), yaxis.c2p(y)];
        const inside = px >= -1 && px <= xaxis._length + 1 && py >= -1 && py <= yaxis._length + 1;
        // of points that lie over each other plotly is told which, into a bar or a cell it is pointed
        const pointer = trace.type === "scatter" ? [{ curveNumber, pointNumber }] : { xpx: px, ypx: py };
        if (inside) put({ curveNumber, pointNumber, subplot, pointer }, px + xaxis._offset, py + yaxis._offset);
      };
      const middle = (edges, i) => (edges[i] + edges[i + 1]) / 2;
      if (!xaxis) continue;
      if (trace.type === "heatmap") cd[0].z.forEach((row, i) => row.forEach((_, j) => at([i, j], middle(cd[0].x, j), middle(cd[0].y, i))));
      else if (trace.type === "bar") cd.forEach(({ x, y, b }, i) => (trace.orientation === "h" ? at(i, (x + b) / 2, y) : at(i, x, (y + b) / 2)));
      else cd.forEach(({ x, y }, i) => at(i, x, y));
    }
    return out;
  }

  // Marks in columns of one x, or where bars lie in rows of one y, each from its begin to its end: arrows reach them all.
  function inLines(gd) {
    const lying = gd._fullData.some((t) => t.orientation === "h" || t.tiling?.orientation === "v") || gd._fullLayout.yaxis?.type === "category";
    const [across, along] = lying ? ["y", "x"] : ["x", "y"];
    const lines = [];
    for (const mark of marksOf(gd).sort((a, b) => a[across] - b[across])) {
      if (lines.length && mark[across] - lines.at(-1)[0][across] <= 1) lines.at(-1).push(mark);
      else lines.push([mark]);
    }
    for (const line of lines) line.sort((a, b) => a[along] - b[along]);
    return { across, along, lines };
  }

  const same = (a) => (b) => a && a.curveNumber === b.curveNumber && String(a.pointNumber) === String(b.pointNumber);
  const ARROWS = { ArrowLeft: ["x", -1], ArrowRight: ["x", 1], ArrowUp: ["y", -1], ArrowDown: ["y", 1] };

  function pointed(Plotly, gd, event) {
    const { key } = event;
    if (event.ctrlKey || event.altKey || event.metaKey || !gd.calcdata) return;
    if (key === "Escape") return left(Plotly, gd);
    if (["Enter", " "].includes(key) && gd.ticdcMark) {
      event.preventDefault();
      const { curveNumber, pointNumber, node } = gd.ticdcMark;
      if (node) return node.dispatchEvent(new MouseEvent("click", { bubbles: true }));
      return gd.emit("plotly_click", { event, points: [{ curveNumber, pointNumber, data: gd.data[curveNumber], fullData: gd._fullData[curveNumber] }] });
    }
    if (!ARROWS[key] && !["Home", "End"].includes(key)) return;
    const { across, along, lines } = inLines(gd);
    if (!lines.length) return;
    event.preventDefault();
    const [axis, step] = ARROWS[key] ?? [];
    const i = lines.findIndex((line) => line.some(same(gd.ticdcMark)));
    const was = lines[i]?.find(same(gd.ticdcMark));
    const next = () => {
      if (key === "Home" || !was) return lines[0][0];
      if (key === "End") return lines.at(-1).at(-1);
      if (axis === along) return lines[i][lines[i].indexOf(was) + step];
      return lines[i + step]?.reduce((a, b) => (Math.abs(b[along] - was[along]) < Math.abs(a[along] - was[along]) ? b : a));
    };
    gd.ticdcMark = next() ?? was;
    was?.node?.dispatchEvent(new MouseEvent("mouseout"));
    const { subplot, pointer, node } = gd.ticdcMark;
    Plotly.Fx.unhover(gd); // else plotly waits with the next words
    if (node) node.dispatchEvent(new MouseEvent("mouseover"));
    else Plotly.Fx.hover(gd, pointer, subplot);
    told(gd);
    ringed(gd);
    gd.querySelector(".ticdc-ring").scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  // A ring around the mark that the arrows have reached, also after it was drawn anew; where it is gone, none.
  function ringed(gd) {
    const mark = (gd.ticdcMark = marksOf(gd).find(same(gd.ticdcMark)));
    const ring = gd.querySelector(".ticdc-ring") ?? made("div", { className: "ticdc-ring" });
    if (!mark) return ring.remove();
    Object.assign(ring.style, { left: `${mark.x}px`, top: `${mark.y}px` });
    gd.querySelector(".svg-container").append(ring);
  }

  function left(Plotly, gd) {
    if (!gd.ticdcMark) return;
    gd.ticdcMark.node?.dispatchEvent(new MouseEvent("mouseout"));
    gd.ticdcMark = undefined;
    gd.querySelector(".ticdc-ring")?.remove();
    if (gd.calcdata) Plotly.Fx.unhover(gd);
  }

  // The words beside a mark, for who does not see them.
  function told(gd) {
    const words = [...gd.querySelectorAll(".hoverlayer :is(.nums, .name)")].flatMap((text) => (text.childElementCount ? [...text.children] : [text]));
    const line = gd.querySelector(".ticdc-unseen") ?? made("div", { className: "ticdc-unseen", role: "status" });
    gd.querySelector(".svg-container").append(line);
    line.textContent = words.map((word) => word.textContent).join(" ");
  }

  // Ranges that lie further along by a part of what they are long, and are longer by a factor.
  function moved(full, across, up, longer) {
    const ranges = {};
    for (const [name, axis] of Object.entries(full)) {
      if (!/^[xy]axis\d*$/.test(name) || axis.fixedrange || !axis.range) continue;
      const [from, to] = axis.range.map((end) => axis.r2l(end));
      const [middle, half] = [(from + to) / 2 + (name[0] === "x" ? across : up) * (to - from), ((to - from) / 2) * longer];
      ranges[`${name}.range`] = [middle - half, middle + half].map((end) => axis.l2r(end));
    }
    return ranges;
  }

  const unseen = (list, kind) => Object.fromEntries((list ?? []).map((_, i) => [`${kind}[${i}].visible`, false]));

  // -------------------------------------------------------------------------------------------------------- fit

  // Resolves when the figure fits; does nothing where it does already, or where the figure is none of ours.
  async function fit(Plotly, gd) {
    if (!gd.layout?.meta?.finding || !gd.clientWidth || !gd.layout.margin) return;
    const key = `${gd.clientWidth} ${titleOf(gd)}`;
    const known = gd.ticdcFitted?.data === gd.data && gd.ticdcFitted.layout === gd.layout;
    if (known && gd.ticdcFitted.key === key) return;
    const { more: m = 0, deeper: d = 0, legend: l } = gd.ticdcFitted ?? {};
    if (!known) gd.ticdcFitted = { data: gd.data, layout: gd.layout, made: asMade(gd), more: m, deeper: d, legend: l };
    if (!known) controls(Plotly, gd);
    const { made, ...fitted } = gd.ticdcFitted;
    const full = gd._fullLayout;
    const font = (px) => `${px}px ${full.font.family}`;
    const narrow = gd.clientWidth < NARROW;
    let width = Math.max(gd.clientWidth, gd.layout.meta.least_px ?? 0);
    const slim = narrow || width > gd.clientWidth;
    let { more, deeper, legend: low } = fitted;
    const { title, annotations, titleLines, noteLines } = rewrite(
      gd,
      (text) => wrapped(text, gd.clientWidth - EDGE - (slim ? FADE + SHIFT : TOOLS), font(full.title.font.size)),
      (note) => wrapped(note.text, gd.clientWidth - EDGE - (slim ? FADE + SHIFT : EDGE), font(note.font?.size ?? full.font.size)),
      { xshift: EDGE - full._size.l, yshift: made.shift },
    );
    const across = Object.keys(gd.layout).filter((name) => name.startsWith("xaxis"));
    const tight = narrow ? { "margin.l": 50, "margin.r": Math.min(made.right, 14) } : {};
    for (const name of Object.keys(gd.layout)) if (narrow && /^yaxis/.test(name) && gd.layout[name].title) tight[`${name}.title.standoff`] = 2;
    for (const name of across) {
      const { type, title: words } = gd.layout[name];
      if (type === "date") tight[`${name}.nticks`] = narrow ? 3 : 7;
      if (words?.text) tight[`${name}.title.text`] = wrapped(words.text, Math.max(PLOT_PX, full[name]._length), font(full.font.size));
    }
    const longest = gd.clientWidth - EDGE - FADE - SHIFT - SIGN;
    const names = gd.data.map((trace, i) => [i, full.showlegend && gd._fullData[i].showlegend && trace.name ? wrapped(trace.name, longest, font(full.legend.font.size)) : trace.name]);
    const broken = names.filter(([i, name]) => name !== gd.data[i].name);
    if (broken.length) await Plotly.restyle(gd, { name: broken.map(([, name]) => name) }, broken.map(([i]) => i));
    let listed = {}; // settings of the legend
    const hidden = { ...unseen(gd.layout.sliders, "sliders"), ...unseen(gd.layout.updatemenus, "updatemenus") };
    const laidOut = async () => {
      for (let pass = 0; pass < 7; pass++) {
        const left = gd._fullLayout._size.l;
        const size = sizes(made, titleLines, noteLines, more, deeper);
        // The legend begins below where the plot is to end; plotly reserves its room above the plot from the middle on.
        const begins = (size["margin.b"] - (low ?? 40) - 8) / size.height;
        const ends = begins - (gd._fullLayout.legend?._effHeight ?? 0) / size.height;
        const anchor = begins < 0.5 ? { "legend.yanchor": "top", "legend.y": begins } : { "legend.yanchor": "bottom", "legend.y": Math.max(0, Math.min(ends, 0.49)) };
        const under = {
          "legend.orientation": "h", ...listed, "legend.xref": "container", "legend.yref": "container", "legend.xanchor": "left",
          "legend.x": EDGE / width, "legend.maxheight": 4000, ...anchor,
        };
        const note = annotations.map((a) => (a.name === "note" ? { ...a, xshift: EDGE - left, yshift: made.shift - deeper } : a));
        scrolls(gd, width);
        await Plotly.relayout(gd, { ...hidden, ...tight, ...under, width, "title.text": title, annotations: note, ...size });
        // Plotly makes its lines as long as the whole figure: where that scrolls, one name is a line.
        const long = width > gd.clientWidth && (gd._fullLayout.legend?._width ?? 0) > gd.clientWidth - EDGE - FADE;
        const entry = Math.max(width / 2, longest + SIGN) + 1;
        const again = long && listed["legend.entrywidth"] !== entry;
        if (again) listed = { "legend.entrywidth": entry, "legend.entrywidthmode": "pixels" };
        const lacks = Math.ceil(PLOT_PX - gd._fullLayout._size.w);
        const short = Math.ceil(PLOT_PX - gd._fullLayout._size.h);
        const [over, { axes, sunk }] = [intrusion(gd, titleLines), beneath(gd)];
        const settled = Math.abs(over) < 3 && Math.abs(sunk) < 3 && Math.abs(axes - (low ?? -9)) < 3 && lacks <= 0 && short <= 0 && !again;
        if (settled) break;
        [more, deeper, low] = [more + over, deeper + sunk, axes];
        if (lacks > 0) width += lacks + 6;
        if (short > 0) made.height += short;
      }
    };
    await laidOut();
    // Where texts lie over each other the figure becomes wider, and scrolls, until they do not.
    const first = { width, px: crowded(gd) };
    let px = first.px;
    while (px && width < WIDEST_PX) {
      width = Math.min(WIDEST_PX, Math.round(width * 1.2));
      await laidOut();
      px = crowded(gd);
    }
    if (px && px > first.px / 2) {
      width = first.width;
      await laidOut();
    }
    for (const bar of gd.querySelectorAll(".modebar-container")) bar.style.display = narrow ? "none" : "";
    Object.assign(gd.ticdcFitted, { key: `${gd.clientWidth} ${title}`, more, deeper, legend: low });
    if (!known && gd.layout.meta.from_end) gd.scrollLeft = gd.scrollWidth; // where it scrolls
    fade(gd);
  }

  // ------------------------------------------------------------------------------------- words and tables, as HTML

  // Where a table has less room than it needs, a row is a block of named cells: nothing is out of sight, none makes the others tall.
  const [LONG_CHARS, TIME_PX] = [20, 150];
  const stacked = (box) => `${box} thead{display:none}${box} :is(table,tbody){display:block}
    ${box} tr{display:flex;flex-flow:row wrap;gap:2px 16px;padding:7px 10px;border-bottom:1px solid #8883;background:var(--ticdc-row)}
    ${box} td{background:none!important;border:0;padding:0;min-width:0!important;overflow-wrap:anywhere}${box} td:empty{display:none}
    ${box} td::before{content:attr(data-h) " ";opacity:.7;font-size:12px}`;
  const SAID = `.ticdc-words{padding:6px 18px 10px;container-type:inline-size}.ticdc-words h4{font:inherit;font-size:17px;margin:4px 0 8px}
    .ticdc-words p{margin:4px 0;opacity:.8;overflow-wrap:anywhere}.ticdc-cells{overflow:auto;max-height:400px;border:1px solid #8884;border-radius:4px}
    .ticdc-cells.ticdc-cells table{table-layout:auto}.ticdc-cells.ticdc-cells :is(th,td){text-align:left}
    .ticdc-cells table{border-collapse:collapse;width:100%;margin:0;font-size:13px}
    .ticdc-cells :is(th,td){text-align:left;padding:4px 10px;border-bottom:1px solid #8883;vertical-align:top;overflow-wrap:break-word}
    .ticdc-cells th{position:sticky;top:0;white-space:nowrap;background:var(--ticdc-head)}.ticdc-cells td.ticdc-chooses{cursor:pointer}
    .ticdc-cells small{display:block;opacity:.7;white-space:nowrap}.ticdc-cells td.ticdc-long:last-child{min-width:15em}
    @container (max-width:1040px){.ticdc-stacks-early :is(th,td){padding:4px 6px}}@container (max-width:640px){${stacked(".ticdc-stacks")}}@container (max-width:460px){${stacked(".ticdc-stacks-late")}}
    @media screen{@container (max-width:740px){${stacked(".ticdc-stacks-early")}}}
    @media print{.ticdc-cells{max-height:none;overflow:visible}.ticdc-cells :is(th,td.ticdc-long){white-space:normal;min-width:0!important}.ticdc-cells tbody tr:nth-child(n+41){display:none}
    .ticdc-cells:has(tbody tr:nth-child(41))::after{content:"On paper: the first 40 rows; the page has all.";font-style:italic}}`;

  // No line ends within a word or a date, as browsers end them behind a hyphen, nor before a unit; behind a slash one may,
  // but for that before a path.
  function whole(root) {
    styled("ticdc-whole", ".ticdc-w{white-space:nowrap}");
    const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    const nodes = [];
    while (texts.nextNode()) if (BREAKS.test(texts.currentNode.data) || UNITS.test(texts.currentNode.data)) nodes.push(texts.currentNode);
    for (const node of nodes) {
      if (node.parentElement.closest("pre, small, script, style, svg, button, select, textarea, .ticdc-w")) continue;
      const parts = node.data.split(UNITS).flatMap((part, i) => (i % 2 ? [part] : part.split(/(?<=[\s.]|\S\/)|(?=\s)/)));
      const pieces = parts.flatMap((piece) => {
        const kept = (BREAKS.test(piece) || UNITS.test(piece)) && piece.length <= WHOLE_CHARS ? made("span", { className: "ticdc-w", textContent: piece }) : piece;
        return piece.endsWith("/") ? [kept, made("wbr")] : [kept];
      });
      node.replaceWith(...pieces);
    }
    root.normalize();
  }
  fit.whole = whole;

  const put = (node, text) => {
    const bold = /^<b>/.test(text);
    String(text ?? "").split("<br>").forEach((part, i) => node.append(...(i ? [document.createElement("br")] : []), plain(part)));
    if (bold) node.style.fontWeight = "600";
    return node;
  };
  const moment = (ts, timeZone) => {
    const two = { month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" };
    const clock = new Intl.DateTimeFormat("sv-SE", { timeZone, year: "numeric", ...two, fractionalSecondDigits: 3 });
    return `${clock.format(Number(BigInt(ts) >> 18n)).replace(",", ".")} ${timeZone}`;
  };
  const at = (list, column, row) => {
    const own = Array.isArray(list) ? (list[column] ?? list[0]) : list;
    return Array.isArray(own) ? own[row] : own;
  };

  function cellsOf(gd, trace, curve, head, zone) {
    const { header, cells } = trace;
    const table = made("table");
    const names = header.values.map((text) => plain([text].flat()[0]).trim());
    const px = (column, i) => Math.max(8 * names[i].length, /_ts(<|$)/.test(header.values[i]) ? TIME_PX : 0, ...column.map((value) => Math.min(TIME_PX, 8 * String(value ?? "").length)));
    const wide = cells.values.reduce((sum, column, i) => sum + 20 + px(column, i), 0);
    const top = table.createTHead().insertRow();
    for (const text of header.values) top.append(put(made("th"), [text].flat()[0]));
    const body = table.createTBody();
    const picks = trace.meta?.selects;
    (cells.values[0] ?? []).forEach((_, row) => {
      const line = body.insertRow();
      line.style.setProperty("--ticdc-row", at(cells.fill?.color, 0, row) ?? "");
      cells.values.forEach((column, i) => {
        const cell = put(line.insertCell(), String(column[row] ?? ""));
        cell.dataset.h = names[i];
        cell.classList.toggle("ticdc-long", cell.textContent.length > LONG_CHARS);
        if (/_ts(<|$)/.test(header.values[i]) && /^\d{15,}$/.test(cell.textContent)) cell.append(made("small", { textContent: moment(cell.textContent, zone) }));
        cell.style.background = at(cells.fill?.color, i, row) ?? "";
      });
      if (!picks || !gd.ticdcChosen) return;
      for (const cell of line.cells) cell.classList.add("ticdc-chooses"); // copying.js gives them keys
      line.onclick = ({ target }) => gd.ticdcChosen(curve, row, plain([header.values[target.closest("td")?.cellIndex] ?? ""].flat()[0]));
    });
    const box = made("div", { className: `ticdc-cells ${wide > 720 ? "ticdc-stacks ticdc-stacks-early" : wide > 640 ? "ticdc-stacks" : wide > 440 ? "ticdc-stacks-late" : ""}`, tabIndex: 0 });
    box.style.setProperty("--ticdc-head", head);
    box.append(table);
    return box;
  }

  // Draws a figure: one that only says something is text, one of tables is tables that wrap, scroll and sort.
  fit.draw = async (Plotly, gd, { data, layout, frames = [], config }) => {
    const inWords = layout.meta?.finding && !frames.length && data.every((trace) => trace.type === "table");
    if (!inWords) {
      if (gd.ticdcInWords) gd.replaceChildren();
      gd.ticdcInWords = false;
      await Plotly.react(gd, { data, layout, frames, config });
      keyed(Plotly, gd);
      return fit(Plotly, gd);
    }
    if (gd.data) Plotly.purge(gd);
    gd.ticdcSteps?.remove();
    Object.assign(gd, { ticdcInWords: true, ticdcFitted: undefined, ticdcPlays: false });
    styled("ticdc-said", SAID);
    const { template, meta } = layout;
    const words = made("div", { className: "ticdc-words" });
    if (layout.title?.text) words.append(put(made("h4"), layout.title.text.replaceAll("<br>", " ")));
    const head = template?.data?.table?.[0]?.header?.fill?.color ?? "";
    words.append(...data.map((trace, curve) => cellsOf(gd, trace, curve, head, meta.zone ?? "UTC")));
    words.append(put(made("p"), meta.note ?? ""));
    whole(words);
    gd.style.minHeight = gd.style.height = "";
    gd.replaceChildren(words);
  };

  // All figures of a page, now and a moment after its width has changed.
  fit.page = (Plotly) => {
    const all = () => Promise.all([...document.querySelectorAll(".js-plotly-plot")].map((gd) => fit(Plotly, gd)));
    let later = 0;
    addEventListener("resize", () => (clearTimeout(later), (later = setTimeout(all, 150))));
    return all();
  };
  return fit;
})();
