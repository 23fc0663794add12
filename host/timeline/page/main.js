// The page's user actions (navigation, search, selection) and its start.

const byId = (id) => document.getElementById(id);

// One of them is open at a time.
const PANELS = ["blocked", "why", "table", "help"];

// The picture on paper, in pixels of the page.
const PRINT_WIDTH = 1040, PRINT_HEIGHT_MAX = 8000;

// Moments of activity in a view of a thousand such moments, below which it is laid out by steps.
const MOMENTS_FEW = 40;

// A browser may keep nothing for a page of a file.
const recalled = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
const recall = (name, value) => { try { localStorage.setItem(name, value); } catch { /* The choice lasts as long as the page. */ } };

const overlaps = (rows, from, to) => {
  for (let row = 0; row < rows.rows; row++) if (rows.t0[row] < to && rows.t1[row] > from) return true;
  return false;
};

class App {
  constructor(timeline) {
    this.timeline = timeline;
    this.words = new Words(timeline);
    this.lanes = new Lanes(timeline);
    this.painter = new Painter(byId("lanes"), timeline, this.lanes, this.words);
    this.panels = new Panels(timeline, this.words, this);
    this.frames = [];
    this.found = null;
    this.selected = null;
    const { head, events } = timeline;
    const whole = head.end - head.begin, shown = events.rows === 0 ? 0 : events.at[events.rows - 1] - events.at[0];
    const length = shown < whole ? `${duration(shown)} of ${duration(whole)}` : duration(whole);
    byId("meta").textContent = `${number(events.rows)} events in ${length}, from ${duration(head.begin)} of the daemon's clock on, ${head.program}`;
    byId("blocked-button").textContent = `Waits at the end (${head.blockedUnknown ? "?" : head.blocked.length + head.blockedLeftOut})`;
    byId("why-button").hidden = head.whyPicture === "";
    if (head.integrity) this.problem(head.integrity);
    this.fit();
    this.busy();
    this.listen();
    this.panels.keys();
    this.resize();
    this.fromHash();
  }

  problem(text) {
    byId("problem").textContent = text;
    byId("problem").hidden = false;
  }

  // Begin and end of an axis, with a margin.
  ends(axis) {
    const { head, events } = this.timeline;
    const [from, to] = axis === 0 ? [head.begin, head.end]
      : [events.rows ? events.seq[0] : 0, events.rows ? events.seq[events.rows - 1] : 1];
    const room = Math.max((to - from) * 0.01, axis === 0 ? 10 : 0.5);
    return [from - room, to + room];
  }

  fit() { byId("remark").textContent = ""; [this.view.from, this.view.to] = this.ends(this.view.axis); this.redraw(); }

  // The first view: without idle time of more than half of it at its begin or end, as while a guest boots.
  busy() {
    const { events, waits, packets, runs } = this.timeline;
    let first = 0, last = events.rows - 1;
    while (last - first > 1) {
      const half = (events.at[last] - events.at[first]) / 2;
      let before = first;
      while (before < last && events.at[before + 1] - events.at[before] <= half) before++;
      if (before === last) break;
      const [from, to] = [events.at[before], events.at[before + 1]];
      if ([waits, packets, runs].some((rows) => overlaps(rows, from, to))) break;
      if (last - before > before - first) first = before + 1; else last = before;
    }
    if (last < first) return;
    const [from, to] = [events.at[first], events.at[last]], room = (to - from) * 0.02 + 10, remarks = [];
    if (last - first < events.rows - 1) {
      this.show(from - room, to + room);
      remarks.push(`without ${duration(this.timeline.head.end - this.timeline.head.begin - (to - from))} of idle time (0 shows all)`);
    }
    // Few moments with many steps each, as around a hang: by time they would be lines without room for a word.
    let moments = 0, free = -Infinity;
    for (let row = first; row <= last; row++) if (events.at[row] >= free) { moments++; free = events.at[row] + (to - from) / 1000; }
    if (moments * 2 < last - first && moments < MOMENTS_FEW) {
      this.turn();
      remarks.push("by steps, because most of the time nothing happens (x shows it by time)");
    }
    byId("remark").textContent = remarks.join("; ");
  }

  get view() { return this.painter.view; }

  show(from, to) {
    const [low, high] = this.ends(this.view.axis), least = this.view.axis === 0 ? 20 : 4;
    let span = Math.min(Math.max(to - from, least), high - low);
    let start = (from + to - span) / 2;
    start = Math.min(Math.max(start, low), high - span);
    [this.view.from, this.view.to] = [start, start + span];
    byId("remark").textContent = "";
    this.redraw();
  }

  pan(screens) {
    const span = this.view.to - this.view.from;
    this.show(this.view.from + span * screens, this.view.to + span * screens);
  }

  zoom(times, around = (this.view.from + this.view.to) / 2) {
    const { from, to } = this.view;
    this.show(around - (around - from) * times, around + (to - around) * times);
  }

  // The same steps on the other axis.
  turn() {
    const { events } = this.timeline, { axis, from, to } = this.view;
    const [here, there] = axis === 0 ? [events.at, events.seq] : [events.seq, events.at];
    const first = Math.min(lowerBound(here, from), Math.max(0, events.rows - 1));
    const last = Math.max(first, Math.min(lowerBound(here, to), events.rows - 1));
    this.view.axis = this.lanes.axis = 1 - axis;
    this.relay();
    byId("axis").textContent = this.view.axis === 0 ? "Axis: time" : "Axis: steps";
    if (first === 0 && last === events.rows - 1) this.fit();
    else if (events.rows > 0) this.show(there[first], there[last] + (axis === 0 ? 1 : 0));
    this.redraw();
  }

  redraw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.frame(); });
  }

  frame() {
    if (this.painter.printed) return;
    const begin = performance.now();
    this.painter.selected = this.selected;
    this.painter.draw(byId("scroller").scrollTop);
    this.overview();
    this.frames.push(performance.now() - begin);
    if (this.frames.length > 1000) this.frames.shift();
    if (!byId("table").hidden) this.tabulate();
  }

  resize() {
    const painter = this.painter;
    if (painter.printed) return;
    painter.size();
    painter.theme();
    byId("spacer").style.height = Math.max(0, this.lanes.height + AXIS + 8 - painter.height) + "px";
    const canvas = byId("overview"), ratio = window.devicePixelRatio || 1;
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = 34 * ratio;
    this.counts = null;
    this.redraw();
  }

  overview() {
    const canvas = byId("overview"), paint = canvas.getContext("2d"), ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, { ink, view } = this.painter, [from, to] = this.ends(view.axis);
    const { events } = this.timeline, positions = view.axis === 0 ? events.at : events.seq;
    if (!this.counts || this.countsAxis !== view.axis) {
      this.counts = new Float64Array(Math.max(1, width - GUTTER));
      this.countsAxis = view.axis;
      let at = 0;
      for (let x = 0; x < this.counts.length; x++) {
        const next = lowerBound(positions, from + ((x + 1) * (to - from)) / this.counts.length, at);
        this.counts[x] = next - at;
        at = next;
      }
    }
    paint.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint.fillStyle = ink.back;
    paint.fillRect(0, 0, width, 34);
    const most = Math.log1p(Math.max(...this.counts));
    paint.fillStyle = ink.quiet;
    this.counts.forEach((count, x) => {
      if (count > 0) { const tall = 3 + 25 * (most ? Math.log1p(count) / most : 0); paint.fillRect(GUTTER + x, 32 - tall, 1, tall); }
    });
    paint.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    paint.textBaseline = "middle";
    paint.fillText("all events", 8, 17);
    const scale = this.counts.length / (to - from), left = GUTTER + (view.from - from) * scale;
    paint.strokeStyle = ink.pick;
    paint.lineWidth = 1.5;
    paint.strokeRect(left, 1, Math.max(3, (view.to - view.from) * scale), 32);
  }

  // Selection.

  positionsOf(kind, row) {
    const { events, waits, packets, runs, marks, samples } = this.timeline;
    switch (kind) {
      case "event": return [events.at[row], events.seq[row], events.track[row], this.lanes.laneOf(events.track[row])];
      case "wait": return [waits.t0[row], waits.s0[row], waits.track[row], "waits"];
      case "packet": return [packets.t0[row], packets.s0[row], packets.track[row], "packets"];
      case "run": return [runs.t0[row], runs.s0[row], runs.track[row], "runs"];
      case "mark": return [marks.at[row], marks.seq[row], marks.track[row], this.lanes.laneOf(marks.track[row])];
      case "sample": return [samples.at[row], samples.seq[row], NONE, "ladder"];
    }
  }

  select(kind, row, { quiet = false } = {}) {
    const [at, seq, track, lane] = this.positionsOf(kind, row);
    this.selected = { kind, row, at: [at, seq], seq };
    const is = (one) => one.kind === lane && (kind === "sample" ? one.fence === this.timeline.samples.fence[row] : one.track === track);
    this.painter.lane = this.lanes.list.find(is) ?? this.painter.lane;
    this.panels.details(this.selected);
    if (!quiet) this.reveal();
    this.toHash();
    this.redraw();
  }

  reveal() {
    const { view } = this, position = this.selected.at[view.axis], span = view.to - view.from;
    if (position < view.from + span * 0.03 || position > view.to - span * 0.03) this.show(position - span / 2, position + span / 2);
    const lane = this.painter.lane, scroller = byId("scroller");
    if (!lane) return;
    if (lane.y < scroller.scrollTop) scroller.scrollTop = lane.y;
    const low = lane.y + lane.height + AXIS - scroller.clientHeight;
    if (low > scroller.scrollTop) scroller.scrollTop = low + 10;
  }

  step(seq) {
    const { events } = this.timeline;
    if (events.rows === 0) return;
    const row = Math.min(lowerBound(events.seq, seq), events.rows - 1);
    this.select("event", row);
    if (this.reach() < (this.view.to - this.view.from) / 3) this.closer();
  }

  // Extent of about twenty events around the selection.
  reach() {
    const { events } = this.timeline, row = lowerBound(events.seq, this.selected.seq), { axis } = this.view;
    const column = axis === 0 ? events.at : events.seq;
    return Math.max(column[Math.min(row + 12, events.rows - 1)] - column[Math.max(row - 12, 0)], 100 * (1 - axis));
  }

  closer() {
    const reach = this.reach() * 1.1, position = this.selected.at[this.view.axis];
    this.show(position - reach / 2, position + reach / 2);
  }

  enter() {
    if (!this.selected) return;
    const { kind, row } = this.selected, columns = { wait: this.timeline.waits, packet: this.timeline.packets, run: this.timeline.runs }[kind];
    if (!columns) { this.closer(); return; }
    const [from, to] = this.view.axis === 0 ? [columns.t0[row], columns.t1[row]] : [columns.s0[row], columns.s1[row]];
    const room = Math.max((to - from) * 0.4, this.view.axis === 0 ? 50 : 3);
    this.show(from - room, to + room);
  }

  cause() {
    const { selected, timeline: { waits, runs } } = this;
    if (!selected) return;
    if (selected.kind === "wait" && waits.by[selected.row] !== NONE) {
      const packet = waits.packet[selected.row];
      if (packet !== NONE) this.select("packet", packet); else this.step(waits.cause[selected.row]);
    } else if (selected.kind === "run") this.step(runs.call[selected.row]);
  }

  // Waits that ended in a step, and how many its signals ended in later steps.
  endedBy(seq) {
    const { waits } = this.timeline, rows = [];
    let later = 0;
    for (let row = 0; row < waits.rows; row++) {
      if (waits.s1[row] === seq && waits.outcome[row] !== 3 && rows.length < 20) rows.push(row);
      later += waits.by[row] !== NONE && waits.cause[row] === seq && waits.s1[row] > seq;
    }
    return [rows, later];
  }

  // Goes to the next or previous event of the lane, or search result.
  next(by) {
    if (this.found && this.found.length > 0) {
      this.foundAt = (this.foundAt + by + this.found.length) % this.found.length;
      this.showFound();
      return;
    }
    const lane = this.painter.lane ?? this.lanes.list.find((one) => one.kind === "calls" && one.list.length > 0);
    if (!lane || !lane.list || lane.list.length === 0) return;
    const kind = { calls: "event", group: "event", waits: "wait", packets: "packet", runs: "run", ladder: "sample" }[lane.kind];
    let place = -1;
    if (this.selected && this.selected.kind === kind) place = lane.list.indexOf(this.selected.row);
    if (place < 0) {
      const column = lane.kind === "calls" ? this.timeline.events.seq : null;
      const middle = this.selected ? this.selected.seq : column ? this.firstSeen() : 0;
      place = lane.list.findIndex((row) => this.positionsOf(kind, row)[1] >= middle) - (by > 0 ? 1 : 0);
    }
    place = Math.min(Math.max(place + by, 0), lane.list.length - 1);
    this.select(kind, lane.list[place]);
  }

  firstSeen() {
    const { events } = this.timeline, column = this.view.axis === 0 ? events.at : events.seq;
    return events.seq[Math.min(lowerBound(column, this.view.from), events.rows - 1)];
  }

  walk(by) {
    const list = this.lanes.list.filter((lane) => lane.kind !== "group");
    const at = list.indexOf(this.painter.lane);
    this.painter.lane = list[Math.min(Math.max(at + by, 0), list.length - 1)];
    const selected = this.selected;
    this.selected ??= { kind: "", row: 0, at: [this.view.from, this.view.from], seq: 0 };
    const { view } = this, keep = [view.from, view.to];
    this.reveal();
    [view.from, view.to] = keep;
    this.selected = selected;
    this.say();
    this.redraw();
  }

  // Tells screen readers which lane the keys work on.
  say() {
    const lane = this.painter.lane;
    if (!lane) return;
    const of = lane.track === NONE ? lane.label : this.words.path(lane.track) + (lane.kind === "waits" ? ", waits" : "");
    byId("said").textContent = `${of}: ${number(lane.list ? lane.list.length : 0)} items; ${this.panels.shown("n")} and ${this.panels.shown("p")} go through them`;
  }

  // Search.

  names(row, fence) {
    const { events } = this.timeline;
    return events.fence[row] === fence || (events.others.get(row)?.some(([other]) => other === fence) ?? false);
  }

  search(text) {
    const tokens = text.trim().split(/\s+/).filter((token) => token);
    this.found = null;
    byId("found").textContent = "";
    if (tokens.length === 0) { this.redraw(); return; }
    const step = /^#(\d+)$/.exec(tokens[0]);
    if (step) { this.step(Number(step[1])); return; }
    const { events, marks, head } = this.timeline;
    const has = (texts, token) => texts.map((one) => one.toLowerCase().includes(token));
    const tests = tokens.map((token) => token.toLowerCase()).map((token) => {
      const fence = /^f(\d+)$/.exec(token), process = /^p\d+$/.test(token);
      const tracks = head.tracks.map((_, id) => (process ? (" " + this.words.path(id)).includes(" " + token + " ") : this.words.path(id).toLowerCase().includes(token)));
      const names = has(head.words, token), statuses = has(head.statuses, token);
      if (fence) return { event: (row) => this.names(row, Number(fence[1])), mark: () => false };
      return {
        event: (row) => tracks[events.track[row]] || (!process && (names[events.name[row]] || (events.status[row] >= 0 && statuses[events.status[row]]))),
        mark: (row) => tracks[marks.track[row]] || (!process && (names[marks.text[row]] || head.markKinds[marks.kind[row]] === token)),
      };
    });
    this.found = [];
    for (let row = 0; row < events.rows; row++) if (tests.every((test) => test.event(row))) this.found.push(["event", row, events.seq[row]]);
    for (let row = 0; row < marks.rows; row++) if (tests.every((test) => test.mark(row))) this.found.push(["mark", row, marks.seq[row]]);
    if (marks.rows > 0) this.found.sort((one, other) => one[2] - other[2]);
    const from = this.selected ? this.selected.seq : this.firstSeen();
    this.foundAt = Math.max(0, this.found.findIndex((one) => one[2] >= from));
    this.showFound();
  }

  showFound() {
    if (this.found.length === 0) { byId("found").textContent = "nothing found"; return; }
    const [kind, row] = this.found[this.foundAt];
    byId("found").textContent = `${number(this.foundAt + 1)} of ${number(this.found.length)}`;
    this.select(kind, row);
  }

  // Panels and links.

  toggle(name) {
    const panel = byId(name), hide = !panel.hidden;
    if (byId(name + "-button").hidden) return;
    for (const other of PANELS) if (!hide && other !== name && !byId(other).hidden) this.toggle(other);
    if (!hide && (name === "why" || name === "blocked") && !panel.querySelector(".scroll").firstChild) this.panels[name]();
    panel.hidden = hide;
    byId(name + "-button").setAttribute("aria-expanded", String(!hide));
    this.resize();
  }

  tabulate() {
    const { events } = this.timeline, { axis, from, to } = this.view, column = axis === 0 ? events.at : events.seq;
    const first = lowerBound(column, from), last = lowerBound(column, to), most = 200;
    this.panels.table(Array.from({ length: Math.min(last - first, most) }, (_, at) => first + at), last - first, this.selected);
  }

  escape() {
    for (const name of PANELS) if (!byId(name).hidden) { this.toggle(name); return; }
    if (byId("find").value !== "") { byId("find").value = ""; this.search(""); return; }
    this.selected = null;
    this.panels.details(null);
    this.redraw();
  }

  toHash() {
    // Some browsers do not let a local file change its address; the page works without that.
    const { kind, row, seq } = this.selected;
    try { history.replaceState(null, "", kind === "event" ? "#seq=" + seq : `#select=${kind}:${row}`); } catch { /* see above */ }
  }

  fromHash() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    if (wanted.has("axis") && (wanted.get("axis") === "step") !== (this.view.axis === 1)) this.turn();
    if (wanted.has("find")) { byId("find").value = wanted.get("find"); this.search(wanted.get("find")); }
    if (wanted.has("seq")) this.step(Number(wanted.get("seq")));
    const [kind, row] = (wanted.get("select") ?? "").split(":"), columns = this.timeline[kind + "s"];
    if (columns && Number(row) < columns.rows) { this.select(kind, Number(row)); this.enter(); }
    if (wanted.has("panel") && byId(wanted.get("panel") + "-button") && byId(wanted.get("panel")).hidden) this.toggle(wanted.get("panel"));
  }

  listen() {
    const scroller = byId("scroller"), overview = byId("overview");
    for (const name of PANELS) byId(name + "-button").addEventListener("click", () => this.toggle(name));
    byId("fit").addEventListener("click", () => this.fit());
    byId("axis").addEventListener("click", () => this.turn());
    byId("with-alt").checked = recalled("gpupv-with-alt") === "yes";
    byId("with-alt").addEventListener("change", (event) => { recall("gpupv-with-alt", event.target.checked ? "yes" : "no"); this.panels.keys(); this.say(); });
    byId("find").addEventListener("change", (event) => this.search(event.target.value));
    byId("find").addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Escape") { this.escape(); scroller.focus(); }
      if (event.key !== "Enter") return;
      if (this.found && this.foundFor === event.target.value) this.next(event.shiftKey ? -1 : 1); else this.search(event.target.value);
      this.foundFor = event.target.value;
      event.preventDefault();
    });
    scroller.addEventListener("scroll", () => this.redraw());
    scroller.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.drag(scroller, (from, event) => {
      if (from.moved) this.show(from.view[0] - (event.clientX - from.x) / this.painter.scale, from.view[1] - (event.clientX - from.x) / this.painter.scale);
    }, (event) => this.click(event));
    const there = (event) => {
      const [low, high] = this.ends(this.view.axis), box = overview.getBoundingClientRect();
      return low + ((event.clientX - box.left - GUTTER) * (high - low)) / (box.width - GUTTER);
    };
    this.drag(overview, (from, event) => { const to = there(event); this.show(Math.min(from.at, to), Math.max(from.at, to)); }, (event) => {
      const half = (this.view.to - this.view.from) / 2;
      this.show(there(event) - half, there(event) + half);
    }, there);
    window.addEventListener("resize", () => this.resize());
    window.addEventListener("hashchange", () => this.fromHash());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.resize());
    window.addEventListener("beforeprint", () => this.print());
    window.addEventListener("afterprint", () => this.print(false));
    document.addEventListener("keydown", (event) => this.key(event));
  }

  drag(node, move, click, at = () => 0) {
    node.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || (node.id === "scroller" && event.offsetX > node.clientWidth)) return;
      const from = { x: event.clientX, view: [this.view.from, this.view.to], at: at(event), moved: false };
      const moved = (event) => {
        from.moved ||= Math.abs(event.clientX - from.x) > 4;
        if (from.moved) move(from, event);
      };
      const up = (event) => {
        window.removeEventListener("pointermove", moved);
        window.removeEventListener("pointerup", up);
        if (!from.moved) click(event);
      };
      window.addEventListener("pointermove", moved);
      window.addEventListener("pointerup", up);
    });
  }

  wheel(event) {
    if (event.ctrlKey || event.metaKey) {
      const box = byId("lanes").getBoundingClientRect();
      this.zoom(1.0015 ** event.deltaY, this.painter.at(Math.max(GUTTER, event.clientX - box.left)));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.pan((event.deltaX || event.deltaY) / 1000);
    } else return;
    event.preventDefault();
  }

  click(event) {
    const box = byId("lanes").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const inside = (hit) => x >= hit.x && x <= hit.x + Math.max(hit.width, 3) && y >= hit.y && y <= hit.y + hit.height;
    const lane = this.lanes.list.find((one) => { const top = one.y - this.painter.scroll + AXIS; return y >= top && y < top + one.height; });
    if (lane) this.painter.lane = lane;
    if (lane && lane.kind === "group" && lane.track !== NONE && x < GUTTER) {
      if (!this.lanes.folded.delete(lane.track)) this.lanes.folded.add(lane.track);
      this.relay();
      return;
    }
    const hit = this.painter.hits.findLast(inside);
    if (hit) this.select(hit.kind, hit.row, { quiet: true }); else this.redraw();
  }

  // Draws all lanes, in the colors of paper, as wide as a page; afterwards as before.
  print(on = true) {
    const { painter } = this, root = document.documentElement;
    painter.printed = false;
    root.toggleAttribute("data-print", on);
    this.resize();
    byId("strips").replaceChildren();
    if (!on) return;
    painter.selected = this.selected;
    painter.size(PRINT_WIDTH, Math.min(this.lanes.height + AXIS + 2, PRINT_HEIGHT_MAX));
    painter.draw(0);
    painter.printed = true;
    byId("strips").replaceChildren(...this.strips());
  }

  // The picture in pieces of a lane each, so that a page ends between two lanes. A canvas that is higher than a page
  // would leave the first one empty, and be cut through a lane.
  strips() {
    const { canvas, ratio } = this.painter;
    let from = 0;
    return this.lanes.list.map((lane, at, all) => {
      const end = at + 1 === all.length ? canvas.height : Math.min(canvas.height, Math.round((AXIS + lane.y + lane.height) * ratio));
      const strip = document.createElement("canvas"), height = Math.max(0, end - from);
      Object.assign(strip, { width: canvas.width, height });
      if (height > 0) strip.getContext("2d").drawImage(canvas, 0, from, canvas.width, height, 0, 0, canvas.width, height);
      from = Math.max(from, end);
      return strip;
    }).filter((strip) => strip.height > 0);
  }

  relay() {
    const { kind, track, fence, label } = this.painter.lane ?? {};
    this.lanes.lay();
    this.painter.lane = this.lanes.list.find((one) => one.kind === kind && one.track === track && one.fence === fence && one.label === label) ?? null;
    this.resize();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.target.type === "search") return;
    const far = event.shiftKey ? 0.9 : 0.15;
    const keys = {
      ArrowLeft: () => this.pan(-far), ArrowRight: () => this.pan(far), ArrowUp: () => this.walk(-1), ArrowDown: () => this.walk(1),
      "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), "-": () => this.zoom(1 / 0.6), "0": () => this.fit(),
      n: () => this.next(1), p: () => this.next(-1), Enter: () => this.enter(), c: () => this.cause(), x: () => this.turn(),
      b: () => this.toggle("blocked"), w: () => this.toggle("why"), t: () => this.toggle("table"), "?": () => this.toggle("help"), "/": () => byId("find").focus(),
      a: () => { this.lanes.allFences = !this.lanes.allFences; this.relay(); }, Escape: () => this.escape(),
    };
    // Enter on a focused button or link keeps its default action.
    if (event.key === "Enter" && ["BUTTON", "A", "SUMMARY"].includes(event.target.tagName)) return;
    // With Alt some keyboards give another character; the name of the key is a letter's in any case.
    const name = event.altKey && !keys[event.key] ? event.code.replace(/^(Key|Digit)/, "").toLowerCase() : event.key;
    // A switch makes Alt a part of the keys that also type characters (WCAG 2.1.4).
    const needsAlt = byId("with-alt").checked && name.length === 1, action = keys[name];
    if (!action || event.altKey !== needsAlt) return;
    event.preventDefault();
    action();
  }
}

// For tests: errors, and whether the page is ready.
window.gpupv = { errors: [], ready: false };
window.addEventListener("error", (event) => window.gpupv.errors.push(event.message));
window.addEventListener("unhandledrejection", (event) => window.gpupv.errors.push(String(event.reason)));

(async () => {
  const node = byId("data"), begin = performance.now();
  try {
    const timeline = await readTimeline(node.textContent);
    node.remove();
    window.gpupv.app = new App(timeline);
    window.gpupv.loaded = performance.now() - begin;
  } catch (error) {
    window.gpupv.errors.push(String(error.stack ?? error));
    byId("problem").textContent = `The timeline cannot be shown: ${error}. The page needs a browser from 2023 or newer (DecompressionStream deflate-raw). The text below shows the same trace.`;
    byId("problem").hidden = false;
    byId("text").open = true;
  }
  window.gpupv.ready = true;
})();
