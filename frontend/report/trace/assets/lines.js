// A scrolled view of many lines, of which only those in sight are in the document.
kiln.LineView = class {
  // options: label; gutter(i): text in front of a line; classes(i): more classes; pick(i): a line is chosen.
  constructor(text, options) {
    this.text = text;
    this.options = options;
    this.cursor = -1;
    this.exact = -1;
    this.element = document.createElement("div");
    this.element.className = "lines";
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "listbox");
    this.element.setAttribute("aria-label", options.label);
    this.height = 18;
    const space = document.createElement("div");
    const widest = text.lines.reduce((most, line) => Math.max(most, line.length), 0);
    space.style.cssText = `height: ${text.lines.length * this.height}px; width: ${Math.min(widest, 2000) + 12}ch`;
    this.element.append(space);
    this.rows = new Map();
    this.element.addEventListener("scroll", () => this.draw());
    this.element.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  // The rows in sight; rows that are there already stay, so that a click hits what was pressed.
  draw() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / this.height) - 10);
    const last = Math.min(this.text.lines.length, first + Math.ceil(this.element.clientHeight / this.height) + 20);
    for (const [i, row] of this.rows) {
      if (i < first || i >= last) {
        row.remove();
        this.rows.delete(i);
      }
    }
    for (let i = first; i < last; i++) {
      if (!this.rows.has(i)) this.rows.set(i, this.make(i));
      this.mark(i);
    }
  }

  make(i) {
    const row = document.createElement("div");
    row.id = `${this.options.id}-${i}`;
    row.setAttribute("role", "option");
    row.style.top = `${i * this.height}px`;
    const gutter = document.createElement("span");
    gutter.className = "gutter";
    gutter.textContent = this.options.gutter ? this.options.gutter(i) : i + 1;
    const code = document.createElement("span");
    code.className = "code";
    code.textContent = this.text.lines[i];
    row.append(gutter, code);
    row.addEventListener("click", () => this.choose(i));
    this.element.append(row);
    return row;
  }

  mark(i) {
    const more = this.options.classes ? this.options.classes(i) : "";
    const cursor = i === this.cursor ? " cursor" : "";
    const how = i === this.exact ? "exact" : kiln.touches(this.text.sets[i]);
    this.rows.get(i).className = `row ${how} ${more}${cursor}`;
  }

  refresh() {
    for (const i of this.rows.keys()) this.mark(i);
  }

  show(i) {
    this.cursor = i;
    const top = i * this.height;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop || top > scrollTop + clientHeight - 2 * this.height) {
      this.element.scrollTop = Math.max(0, top - clientHeight / 3);
    }
    this.draw();
    this.element.setAttribute("aria-activedescendant", `${this.options.id}-${i}`);
  }

  choose(i) {
    this.show(i);
    this.options.pick(i);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) {
      this.show(Math.min(this.text.lines.length - 1, Math.max(0, this.cursor + steps[event.key])));
    } else if (event.key === "Enter" && this.cursor >= 0) {
      this.choose(this.cursor);
    } else if (event.key === "n" || event.key === "p") {
      const found = kiln.nextTouched(this.text, this.cursor, event.key === "n" ? 1 : -1);
      if (found >= 0) this.show(found);
    } else {
      return;
    }
    event.preventDefault();
  }
};
