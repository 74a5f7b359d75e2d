// The tab of `kiln-trace --serve`: what changed, an editor of stages and schedules, numbers and times.
// `texts`: what is in the editor, by graph and part; those of `unsent` a compilation leaves as they are.
kiln.live = { state: null, part: null, texts: new Map(), unsent: new Set(), token: new URLSearchParams(location.search).get("token") };

kiln.live.get = async function (path, more = {}) {
  const answer = await fetch(`${path}?${new URLSearchParams({ ...more, token: this.token })}`);
  if (!answer.ok) throw new Error(await answer.text());
  return answer;
};

// Ask for something; the answer is the state behind it.
kiln.live.post = async function (path, body = {}) {
  const headers = { "X-Kiln-Token": this.token, "Content-Type": "application/json" };
  const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) this.tell(await answer.text());
};

kiln.live.tell = function (text) {
  const box = document.getElementById("live-told");
  if (box) box.textContent = text;
};

// Events name the last compilation: where it is another than the one shown, the data is loaded again.
kiln.live.connect = function () {
  const source = new EventSource(`events?token=${encodeURIComponent(this.token)}`);
  this.latest = -1;
  this.waiting = Promise.resolve();
  source.onmessage = (message) => {
    this.waiting = this.waiting.then(() => this.refresh(JSON.parse(message.data))).catch((error) => {
      this.tell(String(error));
      console.error(error);
    });
  };
  source.onerror = () => this.tell("The server does not answer.");
};

kiln.live.refresh = async function (event) {
  const text = await (await this.get("state")).text(), state = JSON.parse(text);
  if (event.number === this.latest && text === this.shown) return; // a click has two halves, on the same element
  this.shown = text;
  if (event.number !== this.latest) {
    this.latest = event.number;
    for (const key of this.texts.keys()) if (!this.unsent.has(key)) this.texts.delete(key);
    kiln.data = await (await this.get("data")).json();
    this.state = state;
    const shown = Math.min(Number(document.getElementById("graph").value) || 0, kiln.data.graphs.length - 1);
    kiln.fillGraphs(Math.max(shown, 0));
    if (kiln.data.graphs.length) kiln.showGraph(Math.max(shown, 0));
  }
  this.state = state;
  if (kiln.tab !== "Live" && kiln.data.graphs.length) return;
  const { id, selectionStart, selectionEnd, scrollTop } = document.activeElement;
  kiln.open("Live");
  if (!id?.startsWith("live-")) return;
  await this.loaded();
  if (document.activeElement !== document.body) return; // the user is elsewhere by now
  const element = document.getElementById(id);
  element?.focus();
  if (selectionStart !== undefined) element?.setSelectionRange(selectionStart, selectionEnd);
  if (element) element.scrollTop = scrollTop;
};

// The editor has its text; while that was on its way, another editor may have come in its place.
kiln.live.loaded = async function () {
  for (let loading; loading !== this.loading; ) await (loading = this.loading);
};

// A field that remembers what was typed, until that is sent.
kiln.live.draft = function (key, element) {
  element.addEventListener("input", () => {
    this.texts.set(key, element.value);
    this.unsent.add(key);
  });
  return (body) => {
    this.unsent.delete(key);
    this.texts.set(key, element.value);
    this.post("edit", body);
  };
};

kiln.live.graph = () => (kiln.graph ? kiln.data.graphs.indexOf(kiln.graph) : 0);

kiln.live.button = (label, click, attributes = {}) =>
  kiln.make("button", { type: "button", onclick: click, ...attributes }, label);

kiln.live.status = function (state) {
  const last = state.last;
  const box = kiln.make("div", { class: "bar" });
  if (state.doing) {
    box.append(kiln.make("strong", { id: "live-doing" }, `${state.doing} …`), this.button("Stop", () => this.post("stop")));
  } else {
    box.append(kiln.make("span", { id: "live-last" }, last ? `compiled (${last.cause}) in ${last.seconds.toFixed(1)} s` : "not compiled"));
    if (last) box.append(this.button("Run and compare", () => this.post("compare")));
    if (state.edits.length) box.append(this.button("Drop edits", () => this.post("reset"), { id: "live-reset" }));
  }
  if (state.edits.length) box.append(`edited: ${state.edits.map(([graph, name]) => `graph ${graph}, ${name}`).join("; ")}`);
  box.append(kiln.make("span", { class: "dim" }, `${state.watched} files are watched`));
  return box;
};

kiln.live.failure = function (failure) {
  const box = kiln.make("div", { class: "note", id: "live-failure" });
  const where = failure.place ? `graph ${failure.place.graph}, ${failure.place.part}, line ${failure.place.line}: ` : "";
  box.append(kiln.make("pre", {}, `${failure.pass_name ? `pass ${failure.pass_name}: ` : ""}${where}${failure.message}`));
  if (failure.place?.line) box.append(this.button("Go there", () => this.goTo(failure.place), { id: "live-go" }));
  if (failure.trace) {
    box.append(kiln.make("details", {}, kiln.make("summary", {}, "Python's traceback, or output"), kiln.make("pre", {}, failure.trace)));
  }
  return box;
};

// The editor with a line selected.
kiln.live.goTo = async function (place) {
  this.part = place.part;
  kiln.open("Live");
  await this.loaded();
  const area = document.getElementById("live-text");
  const lines = area.value.split("\n");
  const start = lines.slice(0, place.line - 1).join("\n").length + (place.line > 1 ? 1 : 0);
  area.focus();
  area.setSelectionRange(start, start + (lines[place.line - 1] ?? "").length);
  area.scrollTop = Math.max(0, (place.line - 5) * parseFloat(getComputedStyle(area).lineHeight));
};

kiln.live.editor = function (state) {
  const graph = this.graph(), parts = state.sources[graph] ?? [];
  if (!parts.length) return "";
  if (!parts.includes(this.part)) this.part = parts.includes("sched") ? "sched" : parts[0];
  const part = this.part, key = `${graph}/${part}`;
  const area = kiln.make("textarea", { id: "live-text", spellcheck: false, wrap: "off", "aria-label": `Text of ${part}` });
  this.loading = (async () => {
    if (!this.texts.has(key)) this.texts.set(key, await (await this.get("source", { graph, part })).text());
    area.value = this.texts.get(key);
  })();
  const post = this.draft(key, area), send = (compare) => post({ graph, part, text: area.value, compare });
  const bar = kiln.make("div", { class: "bar" },
    kiln.choice("Edit", parts, parts.indexOf(part), (i) => { this.part = parts[i]; kiln.open("Live"); }),
    this.button("Compile from here", () => send(false), { id: "live-compile" }),
    this.button("Compile, run and compare", () => send(true), { id: "live-compare" }));
  return kiln.make("section", {}, kiln.make("h2", {}, "A stage, or the code of a kernel"), bar, area);
};

kiln.live.schedules = function (state) {
  const graph = this.graph(), schedules = Object.entries(state.schedules[graph] ?? {}).filter(([, text]) => text);
  if (!schedules.length) return "";
  const rows = schedules.map(([fusion, text], i) => {
    const key = `${graph}/schedule of ${fusion}`;
    const input = kiln.make("input", { value: this.texts.get(key) ?? text, spellcheck: false, id: `live-schedule-${i}`, "aria-label": `Schedule of ${fusion}` });
    const post = this.draft(key, input), send = (compare) => post({ graph, fusion, schedule: input.value, compare });
    input.addEventListener("keydown", (event) => event.key === "Enter" && send(true));
    return kiln.make("tr", {}, kiln.make("td", {}, fusion), kiln.make("td", { class: "wide" }, input), kiln.make("td", {},
      this.button("Compile", () => send(false)), this.button("Compare", () => send(true), { id: `live-try-${i}` })));
  });
  return kiln.make("section", {}, kiln.make("h2", {}, "Schedules"), kiln.make("table", { class: "wide" }, ...rows));
};

kiln.live.number = (value) => (value === null || value === undefined ? "not equal" : value.toExponential(1));
kiln.live.micros = (seconds) => (seconds === null || seconds === undefined ? "" : `${(1e6 * seconds).toFixed(1)} µs`);

kiln.live.comparison = function (state) {
  const found = state.comparison, box = kiln.make("section", { id: "live-comparison" });
  if (found.results) {
    const rows = found.results.map((row, i) => [i, `${row.dtype}[${row.shape.join(", ")}]`,
      ...["eager", "unedited", "edited"].map((name) => this.number(row[name]))]);
    const times = ["time of a call", "", ...["eager", "unedited", "edited"].map((name) => this.micros(found.seconds[name]))];
    box.append(kiln.make("h2", {}, "Numbers and time"),
      kiln.make("p", { class: "dim" }, `Largest error against ${found.reference}, by the largest element; in training ` +
        "gradients follow the results. Calls of the three alternate; the time is their median."),
      kiln.table(["result", "", "eager", "unedited", "edited"], [...rows, times]));
  }
  const measured = state.times.filter((row) => state.edits.length && row.before !== null && row.after !== null);
  if (measured.length) {
    box.append(kiln.make("h2", {}, "Kernels"), kiln.table(["graph", "step", "unedited", "edited"],
      measured.map((row) => [row.graph, row.name, this.micros(row.before), this.micros(row.after)])));
  }
  return box;
};

kiln.live.changes = function (state) {
  const box = kiln.make("section", { id: "live-changes" });
  if (!state.before) return box;
  box.append(kiln.make("h2", {}, state.changes.length
    ? `${state.changes.length} texts differ from those before (${state.before.cause})` : "Nothing differs from the compilation before."));
  const kinds = { "+": "added", "-": "removed", "@": "cut" };
  for (const change of state.changes) {
    const lines = change.text.split("\n");
    const counts = `+${lines.filter((line) => line[0] === "+").length} −${lines.filter((line) => line[0] === "-").length}`;
    const text = kiln.make("pre", { class: "diff" }, ...lines.map((line) => kiln.make("span", { class: kinds[line[0]] ?? "" }, line + "\n")));
    const details = kiln.make("details", {}, kiln.make("summary", {}, `graph ${change.graph}, ${change.title} (${counts})`), text);
    details.open = change.title.startsWith("s") && lines.length < 200;
    box.append(details);
  }
  return box;
};

kiln.tabs.Live = function (panel) {
  const { live } = kiln, { state } = live;
  panel.append(kiln.make("p", { id: "live-told", role: "status" }));
  if (!state) return void panel.append("Waiting for the server …");
  panel.append(live.status(state));
  if (state.failure) panel.append(live.failure(state.failure));
  panel.append(live.comparison(state), live.changes(state), live.schedules(state), live.editor(state));
  if (state.output) {
    panel.append(kiln.make("details", {}, kiln.make("summary", {}, "What the compilation printed"), kiln.make("pre", {}, state.output)));
  }
};
kiln.tab = "Live";
