// Opening tabs, following links, the header.
kiln.open = function (name, at) {
  if (at !== undefined) kiln.at[name] = at;
  kiln.tab = name;
  kiln.views = [];
  for (const button of document.querySelectorAll("#tabs button")) {
    const is = button.textContent === name;
    button.setAttribute("aria-selected", is);
    button.tabIndex = is ? 0 : -1;
  }
  const panel = document.getElementById("panel");
  panel.replaceChildren();
  panel.setAttribute("aria-label", name);
  kiln.tabs[name](panel);
  kiln.views.forEach((view) => view.draw?.());
};

// A link: the tab with the text, scrolled to a line.
kiln.go = function (id, line) {
  const [kind, first, second] = id.split("/");
  const tab = { file: "Model", graph: "Graph", stage: "Stages", pass: "Passes", kernel: "Kernels", host: "Host" }[kind];
  if (kind === "kernel") kiln.shownLevels.add(kiln.graph.kernels[first].levels[second].title);
  kiln.open(tab, first === undefined ? undefined : Number(first));
  const view = kiln.views.find((found) => found.key_ === id);
  if (!view) return;
  for (const other of kiln.views) {
    const found = other.text && other !== view ? kiln.count(other.text).first : -1;
    if (found >= 0) other.show(found);
  }
  view.element.scrollIntoView({ block: "nearest" });
  view.show(line);
  view.element.focus({ preventScroll: true });
};

kiln.showGraph = function (number) {
  kiln.graph = kiln.data.graphs[number];
  if (!kiln.graph.texts) kiln.index(kiln.graph);
  kiln.at = {};
  kiln.select([], "");
  kiln.open(kiln.tab ?? "Overview");
};

kiln.makeTabs = function () {
  const names = Object.keys(kiln.tabs), bar = document.getElementById("tabs");
  for (const name of names) {
    bar.append(kiln.make("button", { type: "button", role: "tab", onclick: () => kiln.open(name) }, name));
  }
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    kiln.open(names[(names.indexOf(kiln.tab) + step + names.length) % names.length]);
    bar.querySelector('[aria-selected="true"]').focus();
  });
};

kiln.fillGraphs = function (shown) {
  document.getElementById("graph").replaceChildren(...kiln.data.graphs.map((graph, g) =>
    new Option(`${g}: ${graph.kind}, ${graph.ops} ops, ${graph.target}`, g, false, g === shown)));
};

kiln.makeHeader = function () {
  const graphs = document.getElementById("graph"), search = document.getElementById("search");
  kiln.fillGraphs(0);
  graphs.addEventListener("change", () => kiln.showGraph(Number(graphs.value)));
  let waiting = 0;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => kiln.open("Search", search.value.trim()), 150);
  });
  document.getElementById("clear").addEventListener("click", () => kiln.select([], ""));
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.target.matches("input, textarea")) {
      search.focus();
      event.preventDefault();
    } else if (event.key === "Escape") kiln.select([], "");
  });
};

kiln.start = async function () {
  kiln.data = await kiln.load();
  kiln.makeTabs();
  kiln.makeHeader();
  kiln.live?.connect();
  if (kiln.data.graphs.length) kiln.showGraph(0);
  else if (kiln.live) kiln.open("Live");
  else document.getElementById("panel").append("No graph was compiled.");
  document.documentElement.dataset.ready = "yes";
};

kiln.start().catch((error) => {
  document.getElementById("panel").append(kiln.make("p", { class: "note" }, `The trace cannot be shown: ${error}`));
  throw error;
});
