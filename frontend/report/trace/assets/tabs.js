// The tabs. Each is drawn when it is opened; `kiln.at` remembers what each shows.
kiln.at = {};
kiln.shownLevels = new Set(["linalg", "loops", "Triton IR", "assembly", "PTX", "SASS"]);

kiln.view = function (id, options = {}) {
  const text = kiln.graph.texts.get(id);
  const view = new kiln.LineView(text, {
    label: text.title,
    id: id.replaceAll("/", "-"),
    pick: (i) => kiln.pick(id, i),
    classes: (i) => (text.hot && i >= text.hot[0] && i <= text.hot[1] ? "hot" : ""),
    ...options,
  });
  view.key_ = id;
  view.element.dataset.text = id;
  kiln.views.push(view);
  return view;
};

kiln.pick = function (id, i) {
  const text = kiln.graph.texts.get(id);
  const nodes = text.nodesOf(i);
  kiln.select(nodes, nodes.length ? `${text.title}, line ${i + 1}: ${nodes.length} op${nodes.length > 1 ? "s" : ""}` : "");
  kiln.align(id, i);
};

// A line of a kernel's level, and the lines of the levels that it comes from: pairs of a level and a line.
kiln.chain = function (kernel, level, line) {
  const found = [];
  while (level >= 0 && line >= 0) {
    found.push([level, line]);
    const text = kiln.graph.texts.get(`kernel/${kernel}/${level}`);
    [level, line] = text.refs ? [text.of, text.refs[line]] : [-1, -1];
  }
  return found;
};

// The line of another level that comes from the same line as a line of this one, or that it comes from; -1: none.
kiln.counterpart = function (kernel, level, line, other) {
  const mine = new Map(kiln.chain(kernel, level, line));
  if (mine.has(other)) return mine.get(other);
  const text = kiln.graph.texts.get(`kernel/${kernel}/${other}`);
  return text.lines.findIndex((_, j) => {
    const common = kiln.chain(kernel, other, j).find(([above]) => mine.has(above));
    return common !== undefined && common[1] === mine.get(common[0]);
  });
};

// Other panes of a kernel go to the line of the instruction, or to the first line of the selection.
kiln.align = function (id, i) {
  const [kind, kernel, level] = id.split("/");
  for (const view of kiln.views) {
    if (kind !== "kernel" || !view.key_?.startsWith(`kernel/${kernel}/`)) continue;
    view.exact = -1;
    const other = kiln.graph.texts.get(view.key_);
    const ref = view.key_ === id ? -1 : kiln.counterpart(kernel, Number(level), i, Number(view.key_.split("/")[2]));
    if (ref >= 0) view.exact = ref;
    if (view.key_ === id) view.refresh();
    else {
      const line = ref >= 0 ? ref : kiln.count(other).first;
      if (line >= 0) view.show(line);
      view.refresh();
    }
  }
};

kiln.choice = function (label, names, current, change) {
  const select = kiln.make("select", { onchange: () => change(Number(select.value)) });
  names.forEach((name, i) => select.append(new Option(name, i, false, i === current)));
  return kiln.make("label", {}, `${label} `, select);
};

kiln.tabs = {
  Overview(panel) {
    const { graph } = kiln;
    const all = graph.passes.reduce((sum, pass) => sum + pass.ms, 0) || 1;
    const rows = graph.passes.filter((pass) => pass.ms > 0).map((pass, p) =>
      kiln.make("tr", { class: "pick", onclick: () => kiln.go(`pass/${graph.passes.indexOf(pass)}`, 0) },
        kiln.make("td", {}, pass.name), kiln.make("td", { class: "number" }, `${pass.ms.toFixed(1)} ms`),
        kiln.make("td", {}, "█".repeat(Math.round((40 * pass.ms) / all)))));
    panel.append(
      kiln.make("p", {}, `${graph.kind} graph of ${graph.ops} ops for ${graph.target}: ${graph.kernels.length} kernels, ` +
        `${graph.launches.length} steps; compiled in ${graph.seconds.toFixed(2)} s.`),
      ...kiln.timesTable(graph), kiln.make("h2", {}, "Passes that changed or noted something"), kiln.make("table", {}, ...rows),
      kiln.make("h2", {}, "Report"), kiln.make("pre", {}, graph.report));
  },

  Model(panel) {
    const { graph } = kiln, files = graph.files;
    if (!files.length) return void panel.append(kiln.make("p", {}, "No op of this graph names a line of the model."));
    const current = (kiln.at.Model ??= kiln.mainFile(graph));
    const text = graph.texts.get(`file/${current}`);
    panel.append(kiln.choice("File", files.map((file) => file.name), current, (i) => kiln.open("Model", i)));
    if (!text.lines.length) panel.append(kiln.make("p", { class: "note" }, "This file cannot be read here."));
    const view = kiln.view(`file/${current}`, { classes: (i) => (text.sets[i] >= 0 ? "used" : ""),
      gutter: (i) => (text.sets[i] >= 0 ? `${text.nodesOf(i).length}× ${i + 1}` : i + 1) });
    panel.append(view.element);
    const first = text.sets.findIndex((set) => set >= 0);
    if (!kiln.selected.size && first >= 0) view.show(first);
  },

  Graph(panel) {
    panel.append(kiln.view("graph").element);
  },

  Passes(panel) {
    const { graph } = kiln;
    if (!graph.passes.length) return;
    const current = Math.min(kiln.at.Passes ??= 0, graph.passes.length - 1);
    const list = kiln.make("div", { class: "list" }, ...graph.passes.map((pass, p) =>
      kiln.make("button", { type: "button", "aria-current": p === current, title: pass.spec,
        onclick: () => kiln.open("Passes", p) }, `${pass.name}${pass.stage ? ` ▸ ${pass.stage}` : ""}`)));
    panel.append(kiln.make("div", { class: "split" }, list, kiln.passDetail(graph, current)));
  },

  Stages(panel) {
    const { graph } = kiln, current = (kiln.at.Stages ??= 0);
    panel.append(kiln.choice("Stage", graph.stages.map((stage) => stage.title), current, (i) => kiln.open("Stages", i)),
      kiln.view(`stage/${current}`).element);
  },

  Fusions(panel) {
    const { graph } = kiln, picture = kiln.fusionPicture(graph);
    const box = kiln.make("div", { class: "detail" });
    box.append(picture);
    panel.append(kiln.make("p", { class: "dim" }, "Red: measured. " +
      (graph.launches.some((launch) => launch.estimate) ? "Grey: estimated by the cost model, for one core. " : "") +
      (graph.roof ? `Blue line: the least by the rates of ${graph.roof}. ` : "") +
      "Arcs lead from who writes a buffer to who reads it. Double click opens a kernel."), box);
    kiln.pictureView(picture);
  },

  Kernels(panel) {
    const { graph } = kiln;
    if (!graph.kernels.length) return void panel.append(kiln.make("p", {}, "This graph has no kernels of Kiln's."));
    const current = (kiln.at.Kernels ??= 0), kernel = graph.kernels[current];
    const launches = graph.launches.filter((launch) => launch.kernel === current);
    const boxes = kernel.levels.map((level) => {
      const box = kiln.make("input", { type: "checkbox", onchange: () => {
        if (!kiln.shownLevels.delete(level.title)) kiln.shownLevels.add(level.title);
        kiln.open("Kernels", current);
      } });
      box.checked = kiln.shownLevels.has(level.title);
      return kiln.make("label", {}, box, ` ${level.title}`);
    });
    panel.append(kiln.make("div", { class: "bar" },
      kiln.choice("Kernel", graph.kernels.map((k) => `${k.name} (${k.kind})`), current, (i) => kiln.open("Kernels", i)),
      ...boxes, kiln.make("span", { class: "dim" }, `${launches.length} launches`)));
    if (kernel.schedule) panel.append(kiln.make("pre", { class: "note" }, `schedule ${kernel.schedule}`));
    for (const [what, unit, candidates] of kernel.choices ?? []) {
      const rows = candidates.map(([name, cost]) => [name, Number(cost.toPrecision(5)), `${(cost / (candidates[0][1] || 1)).toFixed(2)}×`]);
      panel.append(kiln.make("details", { class: "choices" },
        kiln.make("summary", {}, `${what}: ${candidates[0][0]} of ${candidates.length} candidates by the cost model`),
        kiln.table(["candidate", unit, "of the cheapest"], rows)));
    }
    for (const note of kernel.notes ?? []) panel.append(kiln.make("p", { class: "note" }, note));
    const panes = kiln.make("div", { class: "panes" });
    kernel.levels.forEach((level, l) => {
      if (!kiln.shownLevels.has(level.title)) return;
      const view = kiln.view(`kernel/${current}/${l}`);
      const pane = kiln.make("section", { class: "pane" },
        kiln.make("h3", {}, level.title + (level.hot ? ` (hot loop: lines ${level.hot[0] + 1} to ${level.hot[1] + 1})` : "")));
      if (level.note) pane.append(kiln.make("p", { class: "note" }, level.note));
      pane.append(view.element);
      panes.append(pane);
    });
    panel.append(panes);
  },

  Memory(panel) {
    const picture = kiln.memoryPicture(kiln.graph);
    panel.append(picture);
    kiln.pictureView(picture);
  },

  Host(panel) {
    const { graph } = kiln;
    const called = graph.launches.filter((launch) => launch.reason).map((launch) => [launch.name, launch.reason]);
    const calls = [...graph.calls.map(([op, reason]) => [op, reason]), ...called.filter(([name]) =>
      !graph.calls.some(([op]) => op === name || op.endsWith(` of ${name}`)))];
    panel.append(kiln.make("h2", {}, calls.length ? "Calls of libraries, and why" : "No library is called."));
    if (calls.length) panel.append(kiln.table(["op", "why"], calls));
    panel.append(kiln.view("host").element);
  },

  Search(panel) {
    const wanted = (kiln.at.Search ?? "").toLowerCase();
    if (!wanted) return void panel.append(kiln.make("p", {}, "Type what to look for: all texts of all levels are searched."));
    const found = [];
    for (const [id, text] of kiln.graph.texts) {
      for (let i = 0; i < text.lines.length && found.length < 300; i++) {
        if (text.lines[i].toLowerCase().includes(wanted)) found.push([id, i, text]);
      }
    }
    panel.append(kiln.make("p", {}, `${found.length}${found.length === 300 ? " or more" : ""} lines`));
    for (const [id, i, text] of found) panel.append(kiln.link(id, i, `${text.title}:${i + 1}  ${text.lines[i].trim().slice(0, 160)}`));
  },
};

// The file that most nodes come from.
kiln.mainFile = function (graph) {
  const counts = graph.files.map((_, f) => graph.nodes.filter((node) => node.frames.at(-1)?.[0] === f).length);
  return counts.indexOf(Math.max(...counts));
};

kiln.table = function (heads, rows, pick) {
  const body = rows.map((row, r) => kiln.make("tr", pick ? { class: "pick", tabindex: 0, onclick: () => pick(r),
    onkeydown: (event) => event.key === "Enter" && pick(r) } : {}, ...row.map((cell) => kiln.make("td", {}, String(cell)))));
  return kiln.make("table", {}, kiln.make("tr", {}, ...heads.map((head) => kiln.make("th", {}, head))), ...body);
};

kiln.passDetail = function (graph, current) {
  const pass = graph.passes[current], detail = kiln.make("div", { class: "detail" });
  const last = (path) => path.split("/").at(-1);
  const select = (rows, at) => (r) => kiln.select(graph.sets[rows[r][at]] ?? [], `${pass.name}: ${rows[r][0]}`);
  detail.append(kiln.make("pre", {}, pass.spec), kiln.make("p", {}, `${pass.why ? pass.why + ". " : ""}${pass.ms.toFixed(2)} ms`));
  const counts = Object.entries(pass.counts);
  if (counts.length) detail.append(kiln.make("p", {}, counts.map(([key, count]) => `${key}: ${count}`).join(", ")));
  pass.diffs.forEach((diff, d) => {
    const id = `pass/${current}/${d}`, lines = graph.texts.get(id).lines;
    const kinds = { "+": "added", "-": "removed", "@": "cut" };
    detail.append(kiln.make("h2", {}, diff.part || "changes"),
      kiln.view(id, { gutter: () => "", classes: (i) => kinds[lines[i][0]] ?? "" }).element);
  });
  if (pass.rewrites.length) {
    detail.append(kiln.make("h2", {}, `${pass.rewrites.length} rewrites`), kiln.table(["rule", "op", "in the model", "in the compiler"],
      pass.rewrites.slice(0, 400).map(([rule, op, where, source]) => [rule, op, last(where), last(source)]),
      select(pass.rewrites, 4)));
  }
  if (pass.notes.length) {
    detail.append(kiln.make("h2", {}, `${pass.notes.length} notes`), kiln.table(["op", "why it was or was not rewritten"],
      pass.notes.slice(0, 400).map(([op, why]) => [op, why]), select(pass.notes, 2)));
  }
  if (!pass.diffs.length && pass.changed.length) {
    detail.append(kiln.make("h2", {}, "Kernels that it rewrote"), ...pass.changed.map((name) => {
      const k = graph.kernels.findIndex((kernel) => kernel.name === name);
      return kiln.link(`kernel/${Math.max(k, 0)}/0`, 0, name);
    }));
  }
  return detail;
};
