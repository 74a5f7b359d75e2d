// What is selected: FX nodes. Every level shows them, and the panel at the side lists where they are.
kiln.selected = new Set();
kiln.views = [];

// "strong": all nodes of the set are selected; "weak": some of them; "": none.
kiln.touches = function (set) {
  if (set === undefined || set < 0 || !kiln.selected.size) return "";
  if (!(set in kiln.touched)) {
    const nodes = kiln.graph.sets[set];
    const count = nodes.filter((node) => kiln.selected.has(node)).length;
    kiln.touched[set] = count === 0 ? "" : count === nodes.length ? "strong" : "weak";
  }
  return kiln.touched[set];
};

kiln.nextTouched = function (text, from, step) {
  for (let i = from + step; i >= 0 && i < text.sets.length; i += step) if (kiln.touches(text.sets[i])) return i;
  return -1;
};

kiln.select = function (nodes, label) {
  kiln.selected = new Set(nodes);
  kiln.touched = {};
  kiln.label = label;
  kiln.views.forEach((view) => view.refresh());
  kiln.provenance();
};

// How many lines of a text come from the selection, and the first of them, one of it alone if there is one.
kiln.count = function (text) {
  let count = 0, first = -1, best = -1;
  text.sets.forEach((set, i) => {
    const how = kiln.touches(set);
    if (!how) return;
    count++;
    if (first < 0) first = i;
    if (best < 0 && how === "strong") best = i;
  });
  return { count, first: best >= 0 ? best : first };
};

kiln.make = function (name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
};

kiln.provenance = function () {
  const side = document.getElementById("provenance");
  side.replaceChildren(kiln.make("h2", {}, "Selection"));
  if (!kiln.selected.size) {
    side.append(kiln.make("p", { class: "dim" },
      "Click a line of the model, an op or an instruction: this panel then leads to it at every other level. " +
      "In a text, the arrow keys move, Enter selects, n and p go to the next and previous line of the selection."));
    return;
  }
  side.append(kiln.make("p", {}, kiln.label));
  const groups = [["Model", "file/"], ["FX graph", "graph"], ["Kernels", "kernel/"], ["Stages", "stage/"],
    ["Host", "host"], ["Passes", "pass/"]];
  for (const [title, prefix] of groups) {
    const links = [];
    for (const [id, text] of kiln.graph.texts) {
      if (!id.startsWith(prefix)) continue;
      if (prefix === "file/") links.push(...kiln.modelLinks(id, text));
      else {
        const { count, first } = kiln.count(text);
        if (count) links.push(kiln.link(id, first, `${text.title}: ${count} line${count > 1 ? "s" : ""}`));
      }
    }
    if (links.length) side.append(kiln.make("h2", {}, title), ...links.slice(0, 60));
  }
};

// The model's own lines: of each selected node, where it was called from innermost.
kiln.modelLinks = function (id, text) {
  const file = Number(id.split("/")[1]);
  const lines = new Set();
  for (const node of kiln.selected) {
    const frame = kiln.graph.nodes[node].frames.at(-1);
    if (frame && frame[0] === file) lines.add(frame[1]);
  }
  const name = text.title.split("/").at(-1);
  return [...lines].sort((a, b) => a - b)
    .map((line) => kiln.link(id, line - 1, `${name}:${line} ${(text.lines[line - 1] ?? "").trim()}`));
};

kiln.link = function (id, line, label) {
  return kiln.make("button", { type: "button", class: "link", "data-to": id, onclick: () => kiln.go(id, line) }, label);
};
