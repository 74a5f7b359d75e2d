// Where the time of a call goes: kernels and calls by what a better one could save.
kiln.slowest = function (graph) {
  const groups = new Map();
  for (const launch of graph.launches) {
    if (launch.measured === null) continue;
    const key = `${launch.name} ${launch.kind}`;
    const group = groups.get(key) ?? { ...launch, count: 0, moved: 0, ops: 0, measured: 0, roof: 0 };
    group.count++;
    group.moved += (launch.read ?? 0) + (launch.written ?? 0);
    group.ops += typeof launch.flops === "number" ? launch.flops : 0;
    group.measured += launch.measured;
    group.roof += launch.roof ?? 0;
    groups.set(key, group);
  }
  const left = (group) => (group.roof ? Math.max(0, group.measured - group.roof) : 0);
  return [...groups.values()].map((group) => ({ ...group, left: left(group) }))
    .sort((a, b) => b.left - a.left || b.measured - a.measured);
};

kiln.timesTable = function (graph) {
  const groups = kiln.slowest(graph), shown = groups.slice(0, 15);
  if (!groups.length) return [];
  const all = groups.reduce((sum, group) => sum + group.measured, 0) || 1;
  const rate = (amount, group, unit) => (amount && group.measured ? kiln.amount(Math.round(amount / group.measured), unit) : "");
  const rows = shown.map((group) => [
    group.name, group.kind, group.count, kiln.time(group.measured), `${((100 * group.measured) / all).toFixed(1)} %`,
    rate(group.moved, group, "B/s"), rate(group.ops, group, "op/s"),
    group.roof ? `${Math.min(100, (100 * group.roof) / group.measured).toFixed(0)} %` : "", group.roof ? kiln.time(group.left) : "",
  ]);
  const heads = ["kernel or call", "kind", "times", "measured", "share", "moved", "computed", "of roof", "left"];
  const table = kiln.table(heads, rows, (r) => {
    if (shown[r].kernel >= 0) kiln.go(`kernel/${shown[r].kernel}/0`, 0);
    else kiln.select(graph.sets[shown[r].set] ?? [], shown[r].name);
  });
  table.className = "times";
  for (const row of table.rows) [...row.cells].slice(2).forEach((cell) => cell.classList.add("number"));
  const more = groups.length - shown.length;
  return [kiln.make("h2", {}, `Where the time goes: ${kiln.time(all)} in kernels and calls`), table,
    kiln.make("p", { class: "dim" }, (graph.roof ? `Roof: ${graph.roof}; left: what a kernel at the roof would save. ` : "") +
      (more > 0 ? `${more} more rows in the tab Fusions.` : ""))];
};
