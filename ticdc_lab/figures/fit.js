// Fits a figure of ticdc_lab into the width that it has: plotly breaks no lines, and what stands above or below the
// plot (a legend of several lines, a menu) would lie over the title or the note. The plot keeps its height.
var ticdcFit = globalThis.ticdcFit ?? (() => {
  const EDGE = 18; // left of the title and of the note
  const TOOLS = 130; // the toolbar at the right of the title
  const TITLE_TOP = 16;
  const LINE = { title: 20, note: 17 };
  const pen = document.createElement("canvas").getContext("2d");

  const plain = (text) => new DOMParser().parseFromString(text, "text/html").body.textContent;
  const lines = (text) => text.split("<br>").length;
  const titleHeight = (n) => (n > 1 ? LINE.title * (n - 1) + 10 : 0); // beyond that of one line, as in theme.py
  const titleOf = (gd) => gd.layout.title?.text ?? "";

  function wrapped(text, px, font) {
    pen.font = font;
    const out = [];
    let line = "";
    for (const word of text.replaceAll("<br>", " ").split(/ +(?![^<]*>)/)) {
      const longer = line ? `${line} ${word}` : word;
      if (line && pen.measureText(plain(longer)).width > px) out.push(line);
      line = line && out.at(-1) === line ? word : longer;
    }
    return [...out, line].join("<br>");
  }

  // Texts as they are to be for a width, wherever the figure has them: in its layout, frames and menus.
  function rewrite(gd, breakTitle, breakNote, shift) {
    const { shift: yshift } = gd.ticdcFitted.made;
    const note = (a) => (a.name === "note" ? { ...a, text: breakNote(a), xshift: shift, yshift } : a);
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
    const most = (of) => Math.max(0, ...layouts.flatMap(of).map((text) => (text ? lines(text) : 0)));
    return {
      title, annotations,
      titleLines: most((l) => l.title?.text ?? []), // none where the page says the finding itself
      noteLines: most((l) => (l.annotations ?? []).filter((a) => a.name === "note").map((a) => a.text)),
    };
  }

  function asMade(gd) {
    const { annotations = [], margin, height, sliders = [], updatemenus = [] } = gd.layout;
    const note = annotations.find((a) => a.name === "note");
    const below = (list) => list.map((c) => (c.y === 0 ? (c.pad?.t ?? 0) : null));
    return {
      top: margin.t - titleHeight(lines(titleOf(gd))), height, bottom: margin.b, head: margin.t,
      noteLines: note ? lines(note.text) : 1, shift: note?.yshift ?? 0, sliders: below(sliders), updatemenus: below(updatemenus),
    };
  }

  // How far what stands above the plot reaches into the title.
  function intrusion(gd, titleLines) {
    const frame = gd.getBoundingClientRect();
    const free = TITLE_TOP + LINE.title * titleLines + 8;
    const above = [...gd.querySelectorAll(".legend, .updatemenu-header-group, .infolayer .annotation")]
      .map((node) => node.getBoundingClientRect())
      .filter((box) => box.height && box.top - frame.top < gd._fullLayout._size.t);
    return Math.max(0, ...above.map((box) => Math.ceil(free - (box.top - frame.top))));
  }

  // How far what stands below the plot reaches into the note.
  function sunk(gd) {
    const tops = [...gd.querySelectorAll(".infolayer .annotation")]
      .filter((node) => gd.layout.annotations[node.dataset.index]?.name === "note")
      .map((node) => node.getBoundingClientRect().top);
    const low = [...gd.querySelectorAll(".legend, .xaxislayer-above, .g-xtitle, .g-x2title")]
      .map((node) => node.getBoundingClientRect())
      .filter((box) => box.height && tops.length && box.top < tops[0])
      .map((box) => box.bottom);
    return Math.max(0, ...low.map((bottom) => Math.ceil(bottom + 8 - tops[0])));
  }

  function sizes(made, titleLines, noteLines, more, deeper) {
    const top = made.top + titleHeight(titleLines) + more;
    const down = LINE.note * (noteLines - made.noteLines) + deeper;
    const update = { "margin.t": top, "margin.b": made.bottom + down, "title.pad.t": titleLines > 1 ? 26 : 16 };
    update.height = made.height + (top - made.head) + down;
    for (const kind of ["sliders", "updatemenus"])
      made[kind].forEach((pad, i) => pad !== null && (update[`${kind}[${i}].pad.t`] = pad + down));
    return update;
  }

  // A figure that needs more width than there is scrolls in its box; a slider leaves room for the buttons beside it.
  function widths(gd, width) {
    const narrow = width > gd.clientWidth;
    gd.style.overflowX = narrow ? "auto" : "";
    gd.style.overflowY = narrow ? "hidden" : "";
    if (narrow) gd.tabIndex = 0; // so that the arrow keys scroll it
    if (!gd.ticdcFades) gd.addEventListener("scroll", (gd.ticdcFades = () => fade(gd)));
    const update = { width };
    const buttons = (gd.layout.updatemenus ?? []).some((menu) => menu.type === "buttons" && menu.y === 0);
    if (!buttons) return update;
    const x = Math.min(0.5, Math.max(0.16, 140 / (width - gd._fullLayout._size.l - gd._fullLayout._size.r)));
    gd.layout.sliders.forEach((_, i) => Object.assign(update, { [`sliders[${i}].x`]: x, [`sliders[${i}].len`]: 1 - x }));
    return update;
  }

  // An edge behind which there is more fades out.
  function fade(gd) {
    const [left, right] = [gd.scrollLeft, gd.scrollWidth - gd.clientWidth - gd.scrollLeft].map((px) => px > 1);
    const stops = `${left ? "transparent" : "#000"}, #000 28px calc(100% - 28px), ${right ? "transparent" : "#000"}`;
    gd.style.maskImage = left || right ? `linear-gradient(to right, ${stops})` : "";
  }

  const lowered = (annotations, by) =>
    annotations.map((a) => (a.name === "note" ? { ...a, yshift: a.yshift - by } : a));

  // Resolves when the figure fits; does nothing where it does already, or where the figure is none of ours.
  async function fit(Plotly, gd) {
    const least = gd.layout?.meta?.least_px ?? 0;
    const width = Math.max(gd.clientWidth, least);
    if (!gd.layout?.meta?.finding || !gd.clientWidth || !gd.layout.margin) return;
    const key = `${gd.clientWidth} ${titleOf(gd)}`;
    const known = gd.ticdcFitted?.data === gd.data && gd.ticdcFitted.layout === gd.layout;
    if (known && gd.ticdcFitted.key === key) return;
    if (!known) gd.ticdcFitted = { data: gd.data, layout: gd.layout, made: asMade(gd) };
    const { made } = gd.ticdcFitted;
    const full = gd._fullLayout;
    const font = (px) => `${px}px ${full.font.family}`;
    const { title, annotations, titleLines, noteLines } = rewrite(
      gd,
      (text) => wrapped(text, gd.clientWidth - EDGE - (width > gd.clientWidth ? EDGE : TOOLS), font(full.title.font.size)),
      (note) => wrapped(note.text, gd.clientWidth - 2 * EDGE, font(note.font?.size ?? full.font.size)),
      EDGE - full._size.l,
    );
    let [more, deeper] = [0, 0];
    const update = { "title.text": title, ...widths(gd, width) };
    for (let again = 0; again < 4; again++) {
      Object.assign(update, sizes(made, titleLines, noteLines, more, deeper));
      await Plotly.relayout(gd, { ...update, annotations: lowered(annotations, deeper) });
      const [over, under] = [intrusion(gd, titleLines), sunk(gd)];
      if (!over && !under) break;
      more += over;
      deeper += under;
    }
    gd.ticdcFitted.key = `${gd.clientWidth} ${title}`;
    fade(gd);
  }

  // All figures of a page, now and a moment after its width has changed.
  fit.page = (Plotly) => {
    const all = () => Promise.all([...document.querySelectorAll(".js-plotly-plot")].map((gd) => fit(Plotly, gd)));
    let later = 0;
    addEventListener("resize", () => {
      clearTimeout(later);
      later = setTimeout(all, 150);
    });
    return all();
  };
  return fit;
})();
