"use strict";
(() => {
  const page = document.documentElement;
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const CONFIG = { displaylogo: false, responsive: true, modeBarButtons: [["resetScale2d", "toImage"]] };
  const NARROW = window.matchMedia("(max-width: 48rem)");
  const COARSE = window.matchMedia("(pointer: coarse)");
  const DARK = window.matchMedia("(prefers-color-scheme: dark)");

  const merge = (into, from) => {
    for (const [name, value] of Object.entries(from)) {
      const nested = value && typeof value === "object" && !Array.isArray(value);
      into[name] = nested ? merge({ ...(into[name] || {}) }, value) : value;
    }
    return into;
  };

  const dressed = (layout) => {
    const style = getComputedStyle(page);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { gridcolor: colour("--grid"), linecolor: colour("--soft"), tickcolor: colour("--soft"), zerolinecolor: colour("--line") };
    return merge(
      {
        font: { family: colour("--sans"), color: colour("--ink"), size: 13 },
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        hoverlabel: { bgcolor: colour("--paper"), bordercolor: colour("--line"), font: { color: colour("--ink") } },
        dragmode: COARSE.matches ? false : "zoom",
        xaxis: axis,
        yaxis: axis,
      },
      layout,
    );
  };

  const lineColour = () => getComputedStyle(page).getPropertyValue("--soft").trim();
  // Chinese breaks between any two characters, which are as wide as two letters.
  const wrapped = (text, width) => (text.match(/[\u2e80-\uffef][\uff01-\uff1f\u3001-\u3011]*|[^ \u2e80-\uffef]+[\uff01-\uff1f\u3001-\u3011]*| +/g) || []).reduce((lines, part) => {
    const wide = (line) => line.replace(/[\u2e80-\uffef]/g, "xx").length;
    const last = lines.length - 1;
    if (!lines[last] || wide(lines[last]) + wide(part) <= width) lines[last] += part;
    else lines.push(part);
    return lines;
  }, [""]).map((line) => line.trim()).filter(Boolean).join("<br>");
  // On a phone, the names of the rows take several lines, so that the figures have room beside them.
  const named = (canvas, figure, layout) => {
    canvas.style.height = `${(NARROW.matches ? 10 : 7) + (NARROW.matches ? 2.5 : 1.5) * canvas.dataset.rows}rem`;
    if (!NARROW.matches) return;
    const names = layout.yaxis.ticktext || figure.data.find((trace) => trace.type === "bar").y;
    const ticks = { tickmode: "array", tickvals: layout.yaxis.tickvals || names, ticktext: names.map((name) => wrapped(name, 20)) };
    merge(layout, { yaxis: { ...ticks, tickfont: { size: 10 } } });
  };

  const canvases = (edition) => [...edition.querySelectorAll(".canvas")];
  const shown = () => document.querySelector(".edition:not([hidden])");

  const draw = async (edition) => {
    for (const canvas of canvases(edition)) {
      const figure = figures[canvas.dataset.figure];
      const layout = dressed(figure.layout);
      if (NARROW.matches) {
        const title = wrapped(layout.xaxis.title.text, canvas.dataset.rows ? 26 : 38);
        merge(layout, { margin: { l: 52, r: 8 }, font: { size: 12 }, xaxis: { title: { text: title } } });
      }
      if (canvas.dataset.rows) named(canvas, figure, layout);
      for (const shape of layout.shapes || []) shape.line = { ...shape.line, color: lineColour() };
      await Plotly.react(canvas, figure.data, layout, { ...CONFIG, displayModeBar: !COARSE.matches });
      scalable(canvas);
      if (!canvas.dataset.heard) canvas.on("plotly_afterplot", () => scalable(canvas));
      canvas.dataset.heard = "yes";
      // The page stays quick to the touch while it draws.
      await new Promise((resolve) => setTimeout(resolve));
      if (edition.hidden) return;
    }
    page.dataset.drawn = edition.dataset.lang;
  };

  const choose = (lang) => {
    for (const edition of document.querySelectorAll(".edition")) edition.hidden = edition.dataset.lang !== lang;
    const edition = shown();
    page.lang = edition.lang;
    page.dataset.lang = lang;
    document.title = edition.dataset.title;
    for (const button of document.querySelectorAll("[data-choose]"))
      button.setAttribute("aria-pressed", String(button.dataset.choose === lang));
    return draw(edition);
  };

  const switchTo = (lang) => {
    const at = location.hash.slice(1);
    const before = page.dataset.lang;
    const here = [...shown().querySelectorAll("section[id]")].filter((part) => part.getBoundingClientRect().top < 120).pop();
    choose(lang);
    if (here) document.getElementById(here.id.replace(`${before}-`, `${lang}-`))?.scrollIntoView();
    else if (!at) window.scrollTo(0, 0);
  };

  for (const button of document.querySelectorAll("[data-choose]"))
    button.addEventListener("click", () => switchTo(button.dataset.choose));

  const raw = () => {
    const text = atob(document.getElementById("records").textContent.trim());
    return Uint8Array.from(text, (letter) => letter.charCodeAt(0));
  };
  const save = (blob, name) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const lines = async () => {
    const stream = new Blob([raw()]).stream().pipeThrough(new DecompressionStream("gzip"));
    return (await new Response(stream).text()).trim().split("\n").filter(Boolean).map((line) => JSON.parse(line));
  };
  const csv = (rows) => {
    const columns = Object.keys(rows[0] || {});
    const cell = (value) => {
      const text = value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return [columns, ...rows.map((row) => columns.map((name) => row[name]))].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
  };
  const SAVE = {
    jsonl: async (name) => save(new Blob([raw()], { type: "application/gzip" }), `${name}.jsonl.gz`),
    csv: async (name) => save(new Blob(["\ufeff", csv(await lines())], { type: "text/csv" }), `${name}.csv`),
  };
  for (const button of document.querySelectorAll("[data-save]"))
    button.addEventListener("click", () => SAVE[button.dataset.save](document.getElementById("records").dataset.name));

  // A picture that can be scaled prints at the width of the paper; colours are the style sheet's there.
  const scalable = (canvas) => {
    for (const picture of canvas.querySelectorAll(".main-svg"))
      picture.setAttribute("viewBox", `0 0 ${picture.getAttribute("width")} ${picture.getAttribute("height")}`);
    const { width, height } = canvas.querySelector(".main-svg").viewBox.baseVal;
    canvas.style.setProperty("--ratio", `${width} / ${height}`);
    const side = canvas.closest(".side");
    if (side) page.dataset.columns = getComputedStyle(side).gridTemplateColumns.split(" ").length;
  };

  const unfold = () => {
    for (const fold of shown().querySelectorAll("main details")) fold.open = true;
  };
  window.addEventListener("beforeprint", unfold);
  DARK.addEventListener("change", () => draw(shown()));
  NARROW.addEventListener("change", () => draw(shown()));

  if (NARROW.matches) for (const fold of document.querySelectorAll(".contents details")) fold.open = false;
  choose(page.dataset.lang);
})();
