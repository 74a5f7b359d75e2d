"use strict";
// The data of the page, and the index that answers what a selection of nodes touches.
const kiln = {};

kiln.load = async function () {
  const text = document.getElementById("data").textContent.trim();
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
};

// A text of the trace: its lines, made when it is shown first, and the nodes of each line.
kiln.Text = class {
  constructor(graph, data, title) {
    Object.assign(this, { graph, title, sets: data.sets, refs: data.refs, hot: data.hot, of: data.of, note: data.note });
    this.source = data.text;
  }
  get lines() {
    return (this.cut ??= this.source === "" ? [] : this.source.split("\n"));
  }
  nodesOf(i) {
    return this.graph.sets[this.sets[i]] ?? [];
  }
};

// Everything that has lines: id -> text. Ids are what links name: "stage/2", "kernel/0/3", "file/0", "graph".
kiln.index = function (graph) {
  const texts = new Map();
  const add = (id, data, title) => texts.set(id, new kiln.Text(graph, data, title));
  graph.files.forEach((file, f) => {
    const count = file.text === "" ? 0 : file.text.split("\n").length;
    const at = Array.from({ length: count }, () => []);
    graph.nodes.forEach((node, n) => node.frames.forEach(([of, line]) => of === f && at[line - 1]?.push(n)));
    add(`file/${f}`, { text: file.text, sets: at.map((nodes) => kiln.setOf(graph, nodes)) }, file.name);
  });
  const shown = graph.nodes.map((n) => `${n.name} = ${n.op}(${n.args})` + (n.type ? ` : ${n.type}` : "") +
    (n.way ? `  # ${n.way}${n.why ? ": " + n.why : ""}` : ""));
  add("graph", { text: shown.join("\n"), sets: graph.nodes.map((_, n) => kiln.setOf(graph, [n])) }, "FX graph");
  graph.stages.forEach((stage, s) => add(`stage/${s}`, stage, stage.title));
  graph.passes.forEach((pass, p) =>
    pass.diffs.forEach((diff, d) => add(`pass/${p}/${d}`, diff, pass.name + (diff.part ? ` of ${diff.part}` : ""))));
  graph.kernels.forEach((kernel, k) =>
    kernel.levels.forEach((level, l) => add(`kernel/${k}/${l}`, level, `${level.title} of ${kernel.name}`)));
  const none = graph.host.split("\n").map(() => -1);
  add("host", { text: graph.host, sets: kiln.hostSets(graph, none) }, "host's program");
  graph.texts = texts;
};

// The number of a set of nodes, as the data has them.
kiln.setOf = function (graph, nodes) {
  if (!nodes.length) return -1;
  graph.known ??= new Map(graph.sets.map((set, i) => [set.join(), i]));
  const key = nodes.join();
  if (!graph.known.has(key)) graph.known.set(key, graph.sets.push(nodes) - 1);
  return graph.known.get(key);
};

// Launches and calls stand in the host's program in their order.
kiln.hostSets = function (graph, sets) {
  let next = 0;
  graph.host.split("\n").forEach((line, i) => {
    if (/"kiln\.(launch|call|aten)/.test(line) && next < graph.launches.length) sets[i] = graph.launches[next++].set;
  });
  return sets;
};
