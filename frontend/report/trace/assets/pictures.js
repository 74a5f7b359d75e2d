// SVG pictures: launches with what they move, compute and take; buffers over time.
kiln.svg = function (name, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value);
  }
  if (text !== undefined) element.textContent = text;
  return element;
};

kiln.amount = function (value, unit) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return `${value} ${unit}`;
  for (const [factor, prefix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= factor) return `${(value / factor).toPrecision(3)} ${prefix}${unit}`;
  }
  return `${value} ${unit}`;
};

kiln.time = (seconds) => (seconds === null || seconds === undefined ? "" : `${(1e6 * seconds).toFixed(1)} µs`);

// One row per step of the plan; arcs at the left lead from who writes a buffer to who reads it.
kiln.fusionPicture = function (graph) {
  const height = 22, left = 150, launches = graph.launches;
  const longest = Math.max(...launches.flatMap((l) => [l.measured ?? 0, l.estimate ?? 0]), 1e-12);
  const picture = kiln.svg("svg", { width: 1110, height: (launches.length + 1) * height, role: "group",
    "aria-label": "Kernels and calls in the order in which they run" });
  const heads = { [left + 4]: "kernel or call", 480: "bytes", 570: "operations", 660: "estimated, measured" };
  for (const [x, text] of Object.entries(heads)) picture.append(kiln.svg("text", { x, y: 14 }, text));
  const writer = {};
  launches.forEach((launch, i) => {
    const y = (i + 1) * height;
    for (const buffer of new Set(launch.reads)) {
      if (!(buffer in writer)) continue;
      const from = (writer[buffer] + 1.5) * height, bend = left - Math.min(left - 5, 12 + 7 * (i - writer[buffer]));
      picture.append(kiln.svg("path", { class: "edge",
        d: `M${left},${from} C${bend},${from} ${bend},${y + height / 2} ${left},${y + height / 2}` }));
    }
    for (const buffer of launch.writes) writer[buffer] = i;
    kiln.fusionRow(picture, launch, i, y, left, 250 / longest);
  });
  return picture;
};

kiln.fusionRow = function (picture, launch, i, y, left, scale) {
  const pick = () => kiln.select(kiln.graph.sets[launch.set] ?? [], `${launch.name}: step ${i} of the host's program`);
  const box = kiln.svg("rect", { class: "shape", x: left, y: y + 2, width: 315, height: 18, rx: 3, tabindex: 0,
    role: "button", "aria-label": launch.name, onclick: pick,
    onkeydown: (event) => event.key === "Enter" && pick(),
    ondblclick: () => launch.kernel >= 0 && kiln.go(`kernel/${launch.kernel}/0`, 0) });
  box.dataset.set = launch.set;
  box.append(kiln.svg("title", {}, `${launch.name} (${launch.kind})\n${launch.reason}\nread ` +
    `${kiln.amount(launch.read, "B")}, written ${kiln.amount(launch.written, "B")}\ndouble click: its kernel`));
  const moved = launch.read === null ? null : launch.read + launch.written;
  picture.append(box,
    kiln.svg("text", { x: left + 4, y: y + 15, "pointer-events": "none" }, `${launch.name} · ${launch.kind}`.slice(0, 46)),
    kiln.svg("text", { x: 480, y: y + 15 }, kiln.amount(moved, "B")),
    kiln.svg("text", { x: 570, y: y + 15 }, kiln.amount(launch.flops, "op")),
    kiln.svg("rect", { class: "estimated", x: 660, y: y + 4, width: (launch.estimate ?? 0) * scale, height: 6 }),
    kiln.svg("rect", { class: "roof", x: 660 + (launch.roof ?? 0) * scale, y: y + 2, width: launch.roof ? 2 : 0, height: 18 }),
    kiln.svg("rect", { class: "measured", x: 660, y: y + 12, width: (launch.measured ?? 0) * scale, height: 6 }),
    kiln.svg("text", { x: 665 + scale * Math.max(launch.estimate ?? 0, launch.measured ?? 0), y: y + 15 },
      [kiln.time(launch.estimate), kiln.time(launch.measured)].filter(Boolean).join(", ") +
      (launch.roof && launch.measured ? `, ${Math.min(100, (100 * launch.roof) / launch.measured).toFixed(0)} % of roof` : "")));
};

// The workspace: time to the right, addresses downwards. Buffers without a place in it are rows below.
kiln.memoryPicture = function (graph) {
  const { buffers, steps } = graph.memory, width = 900, height = 260;
  const placed = buffers.filter((b) => b.offset !== null && typeof b.bytes === "number");
  const others = buffers.filter((b) => !placed.includes(b));
  const end = Math.max(...placed.map((b) => b.offset + b.bytes), 1), scale = width / Math.max(steps, 1);
  const picture = kiln.svg("svg", { width: width + 20, height: height + 40 + 14 * others.length, role: "group",
    "aria-label": "Buffers over time" });
  picture.append(kiln.svg("text", { x: 0, y: 14 },
    `workspace: ${kiln.amount(placed.length ? end : 0, "B")} over ${steps} steps (to the right), addresses downwards`));
  const add = (b, y, tall) => {
    const box = kiln.svg("rect", { class: "shape", x: b.first * scale, y, width: (b.last - b.first + 1) * scale,
      height: Math.max(2, tall), tabindex: 0, role: "button", "aria-label": `${b.kind} ${b.type}`,
      onclick: () => kiln.selectWriter(graph, buffers.indexOf(b)),
      onkeydown: (event) => event.key === "Enter" && kiln.selectWriter(graph, buffers.indexOf(b)) });
    const writer = graph.launches.find((launch) => launch.writes.includes(buffers.indexOf(b)));
    box.dataset.set = writer ? writer.set : -1;
    box.append(kiln.svg("title", {}, `${b.kind} ${b.type}, ${kiln.amount(b.bytes, "B")}, steps ${b.first} to ${b.last}` +
      (b.offset !== null ? `, at ${b.offset}` : "") + (writer ? `\nwritten by ${writer.name}` : "")));
    picture.append(box);
  };
  for (const b of placed) add(b, 24 + (b.offset / end) * height, (b.bytes / end) * height);
  others.forEach((b, i) => {
    add(b, height + 32 + 14 * i, 10);
    picture.append(kiln.svg("text", { x: b.first * scale + 4, y: height + 41 + 14 * i, "pointer-events": "none" },
      `${b.kind} ${b.type} ${kiln.amount(b.bytes, "B")}`));
  });
  return picture;
};

kiln.selectWriter = function (graph, buffer) {
  const writer = graph.launches.find((launch) => launch.writes.includes(buffer)) ??
    graph.launches.find((launch) => launch.reads.includes(buffer));
  if (writer) kiln.select(graph.sets[writer.set] ?? [], `a buffer of ${writer.name}`);
};

// A picture as one of the views that show the selection.
kiln.pictureView = function (picture) {
  const view = {
    refresh() {
      for (const box of picture.querySelectorAll(".shape")) {
        box.setAttribute("class", `shape ${kiln.touches(Number(box.dataset.set))}`);
      }
    },
  };
  view.refresh();
  kiln.views.push(view);
};
