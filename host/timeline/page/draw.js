// Draws lanes on the canvas: only the visible part, and at most one mark per pixel.

const GUTTER = 236, AXIS = 22;
// A queue with more packets is not drawn packet by packet.
const STAIRS_MAX = 1200;
const HITS_MAX = 20000;

class Painter {
  constructor(canvas, timeline, lanes, words) {
    Object.assign(this, { canvas, timeline, lanes, words });
    this.paint = canvas.getContext("2d");
    this.view = { axis: 0, from: 0, to: 1 };
    this.selected = null;
    this.lane = null;
    this.hits = [];
  }

  theme() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue("--" + name).trim();
    this.ink = Object.fromEntries(["back", "front", "quiet", "line", "band", "pick", "bad", "wait", "ladder"].map((name) => [name, of(name)]));
    this.ink.tracks = [0, 1, 2, 3, 4, 5].map((at) => of("c" + at));
    this.hatch = this.hatched(this.ink.back);
  }

  // A hatch over slices that failed or are pending, so that they are visible without colors.
  hatched(color) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const paint = tile.getContext("2d");
    paint.strokeStyle = color;
    paint.lineWidth = 1.6;
    paint.beginPath();
    for (const shift of [-6, 0, 6]) { paint.moveTo(shift, 6); paint.lineTo(shift + 6, 0); }
    paint.stroke();
    return this.paint.createPattern(tile, "repeat");
  }

  size(width, height) {
    const ratio = window.devicePixelRatio || 1, box = this.canvas.parentElement;
    this.width = width ?? box.clientWidth;
    this.height = height ?? box.clientHeight;
    this.canvas.style.height = this.height + "px";
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.ratio = ratio;
  }

  x(position) { return GUTTER + (position - this.view.from) * this.scale; }
  at(x) { return this.view.from + (x - GUTTER) / this.scale; }

  draw(scroll) {
    const { paint, ink } = this;
    this.scale = (this.width - GUTTER) / (this.view.to - this.view.from);
    this.scroll = scroll;
    this.hits = [];
    this.examined = 0;
    paint.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    paint.fillStyle = ink.back;
    paint.fillRect(0, 0, this.width, this.height);
    paint.textBaseline = "middle";
    for (const lane of this.lanes.list) {
      const y = lane.y - scroll + AXIS;
      if (y + lane.height < AXIS || y > this.height) continue;
      this.frame(lane, y);
      paint.save();
      paint.beginPath();
      paint.rect(GUTTER, y, this.width - GUTTER, lane.height);
      paint.clip();
      this[lane.kind](lane, y);
      paint.restore();
    }
    this.arrows();
    this.ruler();
  }

  frame(lane, y) {
    const { paint, ink } = this, group = lane.kind === "group";
    if (group || lane === this.lane) {
      paint.fillStyle = ink.band;
      paint.fillRect(0, y, this.width, lane.height);
    }
    paint.fillStyle = ink.line;
    paint.fillRect(0, y + lane.height - 0.5, this.width, 0.5);
    const left = 8 + lane.depth * 12;
    if (!group && lane.track !== NONE && lane.depth > 0 && lane.kind !== "waits") {
      paint.fillStyle = ink.tracks[lane.color];
      paint.fillRect(left - 7, y + 3, 3, lane.height - 6);
    }
    paint.fillStyle = group || lane.kind === "calls" ? ink.front : ink.quiet;
    paint.font = (group ? "600 " : "") + "12px system-ui, 'DejaVu Sans', sans-serif";
    const fold = group && lane.track !== NONE ? (this.lanes.folded.has(lane.track) ? "\u25b8 " : "\u25be ") : "";
    const top = lane.height > 30 ? y + 10 : y + lane.height / 2;
    const more = lane.stack && lane.stack.rows > ROWS_MAX ? ` (${lane.stack.rows >= 255 ? "255+" : lane.stack.rows} deep)` : "";
    this.clipped(fold + lane.label + more, left, top, GUTTER - left - 6);
    if (lane === this.lane) {
      paint.fillStyle = ink.pick;
      paint.fillRect(0, y, 3, lane.height);
    }
  }

  clipped(text, x, y, width) {
    if (width < 12) return;
    const { paint } = this;
    if (paint.measureText(text).width > width) {
      let end = text.length;
      while (end > 1 && paint.measureText(text.slice(0, end) + "\u2026").width > width) end = Math.min(end - 1, Math.floor(end * 0.9));
      if (end <= 1) return;
      text = text.slice(0, end) + "\u2026";
    }
    paint.fillText(text, x, y);
  }

  hit(x, y, width, height, kind, row) {
    if (this.hits.length < HITS_MAX) this.hits.push({ x, y, width, height, kind, row });
  }

  // Events of a VM or an adapter itself.
  group(lane, y) { if (lane.list) this.calls(lane, y); }

  // A tick for each call; many calls in one pixel are a taller tick. Refused calls have a cross.
  calls(lane, y) {
    const { paint, ink, view } = this, positions = this.lanes.positions(lane, view.axis);
    const color = lane.depth === 0 ? ink.quiet : ink.tracks[lane.color];
    const to = lowerBound(positions, view.to);
    let at = lowerBound(positions, view.from);
    const names = [];
    while (at < to) {
      const pixel = Math.floor(this.x(positions[at]));
      const next = Math.max(at + 1, lowerBound(positions, this.at(pixel + 1), at + 1, to));
      const count = next - at, tall = Math.min(lane.height - 4, 6 + 2 * Math.log2(count + 1));
      paint.fillStyle = color;
      paint.fillRect(pixel, y + (lane.height - tall) / 2, Math.min(2, Math.max(1, this.scale)), tall);
      const refused = lane.refused[next] - lane.refused[at];
      if (refused > 0) this.cross(pixel + 0.5, y + lane.height / 2);
      this.hit(pixel - 2, y, 5, lane.height, "event", lane.list[at]);
      names.push([pixel, count === 1 ? lane.list[at] : NONE]);
      at = next;
    }
    this.names(names, y + lane.height / 2);
    this.flags(lane, y);
  }

  // Names of calls with enough room before the next call.
  names(names, y) {
    const { paint, ink } = this;
    paint.fillStyle = ink.front;
    paint.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    for (let at = 0; at < names.length; at++) {
      const [x, row] = names[at], room = (at + 1 < names.length ? names[at + 1][0] : this.width) - x - 8;
      if (room > 40 && row !== NONE) this.clipped(this.words.event(row), x + 4, y, room);
    }
  }

  cross(x, y) {
    const { paint, ink } = this;
    paint.strokeStyle = ink.bad;
    paint.lineWidth = 2;
    paint.beginPath();
    paint.moveTo(x - 4, y - 4); paint.lineTo(x + 4, y + 4);
    paint.moveTo(x - 4, y + 4); paint.lineTo(x + 4, y - 4);
    paint.stroke();
  }

  // Notes, faults and resets: a flag with its first letter.
  flags(lane, y) {
    const { paint, ink, view, timeline: { marks } } = this;
    const list = this.lanes.marks[lane.track];
    if (!list) return;
    let last = -100;
    const column = view.axis === 0 ? marks.at : marks.seq;
    for (const row of list) {
      const x = this.x(column[row]);
      if (x < GUTTER - 10 || x > this.width || x - last < 3) continue;
      last = x;
      const quiet = marks.kind[row] === 0;
      paint.fillStyle = quiet ? ink.quiet : ink.bad;
      paint.beginPath();
      paint.moveTo(x - 5, y + 1); paint.lineTo(x + 5, y + 1); paint.lineTo(x, y + 9);
      paint.fill();
      this.hit(x - 5, y, 10, 10, "mark", row);
    }
  }

  range(lane) { return this.view.axis === 0 ? lane.time : lane.order; }

  waits(lane, y) {
    const { ink, timeline: { waits }, words } = this;
    this.slices(lane, y, "wait", (row) => ({
      fill: waits.outcome[row] === 3 ? ink.bad : ink.wait,
      hatch: waits.outcome[row] !== 0, text: words.wait(row),
    }));
  }

  // Rows of slices; zoomed out, the number of slices as an area.
  slices(lane, y, kind, look) {
    const { view, paint, ink } = this, { stack } = lane, { begin } = stack;
    const seen = lowerBound(begin, view.to) - lowerBound(begin, view.from);
    if (seen > 4 * (this.width - GUTTER) || (stack.rows > ROWS_MAX && seen > this.width / 3)) {
      this.area(lane, y, stack.depth(), kind === "wait" ? ink.wait : ink.tracks[lane.color]);
      return;
    }
    stack.lines.forEach((line, row) => {
      const [from, to] = stack.lineEnds[row];
      let at = Math.max(0, lowerBound(from, view.from) - 1);
      const last = lowerBound(from, view.to);
      while (at < last) {
        const x = this.x(from[at]);
        let wide = (to[at] - from[at]) * this.scale, next = at + 1;
        if (wide < 1) {
          // The last slice that begins in this pixel may be long.
          next = Math.max(next, lowerBound(from, this.at(Math.floor(x) + 1), next, last) - 1);
          wide = 1;
        }
        if (x + wide >= GUTTER) this.slice(x, y + 2 + row * ROW, wide, ROW - 1, look(stack.list[line[at]]), kind, stack.list[line[at]]);
        at = next;
      }
    });
    paint.globalAlpha = 1;
  }

  slice(x, y, width, height, { fill, hatch, pale, text }, kind, row) {
    const { paint, ink } = this, left = Math.max(x, GUTTER);
    width = Math.min(x + width, this.width + 2) - left;
    paint.fillStyle = fill;
    paint.globalAlpha = pale ? 0.3 : 1;
    paint.fillRect(left, y, width, height);
    paint.globalAlpha = 1;
    if (pale && width > 3) {
      paint.strokeStyle = fill;
      paint.lineWidth = 1;
      paint.strokeRect(left + 0.5, y + 0.5, width - 1, height - 1);
    }
    if (hatch) {
      paint.fillStyle = this.hatch;
      paint.fillRect(left, y, width, height);
    }
    if (this.selected && this.selected.kind === kind && this.selected.row === row) {
      paint.strokeStyle = ink.pick;
      paint.lineWidth = 2;
      paint.strokeRect(left + 1, y + 1, Math.max(1, width - 2), height - 2);
    }
    if (width > 30 && height > 9) {
      paint.font = "11px system-ui, 'DejaVu Sans', sans-serif";
      const room = width - 6, shown = Math.min(room, paint.measureText(text).width);
      if (hatch && !pale) {
        paint.fillStyle = fill;
        paint.fillRect(left, y, shown + 6, height);
      }
      paint.fillStyle = pale ? ink.front : ink.back;
      this.clipped(text, left + 3, y + height / 2 + 0.5, room);
    }
    this.hit(left, y, width, height, kind, row);
  }

  // The number of overlapping slices as a height.
  area(lane, y, depth, color) {
    const { paint, ink } = this, most = Math.max(1, depth.most), floor = y + lane.height - 2, tall = lane.height - 4;
    let at = lowerBound(depth.at, this.view.from), now = at > 0 ? depth.count[at - 1] : 0;
    paint.fillStyle = color;
    paint.beginPath();
    paint.moveTo(GUTTER, floor);
    for (let x = GUTTER; x < this.width; x++) {
      const next = lowerBound(depth.at, this.at(x + 1), at);
      const high = Math.max(now, peak(depth.peaks, at, next));
      if (next > at) now = depth.count[next - 1];
      at = next;
      paint.lineTo(x, floor - (high / most) * tall);
      paint.lineTo(x + 1, floor - (high / most) * tall);
    }
    paint.lineTo(this.width, floor);
    paint.fill();
    paint.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    const label = `up to ${number(depth.most)}`;
    // On a plate: bars may be as high.
    paint.fillStyle = ink.back;
    paint.fillRect(GUTTER + 2, y + 2, paint.measureText(label).width + 4, 14);
    paint.fillStyle = ink.front;
    paint.fillText(label, GUTTER + 4, y + 9);
  }

  // A queue as GPUView draws it: a packet is stacked on the earlier ones and moves down as they end.
  // A packet that the engine runs has full color, a waiting one is pale.
  packets(lane, y) {
    const { view, ink } = this, { stack } = lane, { begin, end } = stack;
    const first = lowerBound(begin, view.from), last = lowerBound(begin, view.to);
    if (last - first > STAIRS_MAX) {
      this.area(lane, y, stack.depth(), ink.tracks[lane.color]);
      return;
    }
    // Earlier packets that are still queued: as many as the depth at the view's begin says.
    const depth = stack.depth(), changes = lowerBound(depth.at, view.from);
    let start = first, missing = changes > 0 ? depth.count[changes - 1] : 0;
    for (let back = 8 * missing + 64; missing > 0 && back > 0 && start > 0; back--) if (end[--start] >= view.from) missing--;
    // When the packets that are queued end, in order; those before `gone` have ended.
    const ends = [];
    let gone = 0;
    this.examined += last - start;
    for (let at = start; at < last; at++) {
      while (gone < ends.length && ends[gone] <= begin[at]) gone++;
      if (gone > 1024) { ends.splice(0, gone); gone = 0; }
      if (end[at] >= view.from) this.stairs(lane, y, at, ends, gone, begin[at], end[at]);
      ends.splice(lowerBound(ends, end[at], gone), 0, end[at]);
    }
  }

  // A packet from its begin to its end, a row lower each time that one ahead of it ends. Only the rows of the lane are
  // looked at, however deep the queue is.
  stairs(lane, y, at, ends, gone, from, until) {
    const { view, ink, timeline: { packets }, words } = this, row = lane.stack.list[at];
    const ahead = ends.length - gone, leaving = lowerBound(ends, until, gone) - gone;
    const rows = Math.max(1, Math.min(lane.stack.rows, ROWS_MAX)), floor = y + lane.height - 2;
    const color = lane.label === "hardware queue" ? ink.tracks[this.lanes.colors[packets.track[row]]] : ink.tracks[lane.color];
    for (let left = Math.max(0, ahead - rows + 1); left <= leaving; left++) {
      this.examined++;
      const begin = left === 0 ? from : ends[gone + left - 1], end = left < leaving ? ends[gone + left] : until;
      if (end < view.from || begin > view.to) continue;
      const level = ahead - left, x = this.x(begin), width = Math.max(1, (end - begin) * this.scale);
      const runs = view.axis === 0 && packets.ran[row] <= begin;
      const pale = !runs && packets.kind[row] === 0 && level > 0;
      const fill = packets.kind[row] === 0 ? color : packets.kind[row] === 1 ? ink.quiet : ink.wait;
      const hatch = packets.outcome[row] !== 0;
      const text = width > 30 ? words.packet(row) : "";
      this.slice(x, floor - (level + 1) * ROW + 1, width, ROW - 1, { fill, hatch, pale, text }, "packet", row);
    }
  }

  runs(lane, y) {
    const { view, ink, timeline: { runs }, words } = this, [begin, end] = this.range(lane);
    let at = Math.max(0, lowerBound(begin, view.from) - 1);
    const last = lowerBound(begin, view.to);
    while (at < last) {
      const x = this.x(begin[at]);
      let wide = (end[at] - begin[at]) * this.scale, next = at + 1;
      if (wide < 1) {
        next = Math.max(next, lowerBound(begin, this.at(Math.floor(x) + 1), next, last) - 1);
        wide = 1;
      }
      const row = lane.list[at], hung = (runs.flags[row] & 1) === 1;
      const fill = hung ? ink.bad : runs.queue[row] === NONE ? ink.quiet : ink.tracks[this.lanes.colors[runs.queue[row]]];
      if (x + wide >= GUTTER) this.slice(x, y + 3, wide, lane.height - 6, { fill, hatch: hung || (runs.flags[row] & 2) === 2, text: words.run(row) }, "run", row);
      at = next;
    }
    this.flags(lane, y);
  }

  // The value of a fence: a step for each signal.
  ladder(lane, y) {
    const { paint, ink, view } = this, [positions] = this.range(lane), values = lane.value;
    const first = Math.max(0, lowerBound(positions, view.from) - 1), last = lowerBound(positions, view.to);
    const points = [];
    let low = Infinity, high = -Infinity;
    for (let at = first; at < last;) {
      const pixel = Math.max(GUTTER, Math.floor(this.x(positions[at])));
      const next = Math.max(at + 1, lowerBound(positions, this.at(pixel + 1), at + 1, last));
      points.push([pixel, values[next - 1], lane.list[next - 1]]);
      // Values of a reset are not drawn to scale, because they would flatten all others.
      for (const value of [values[at], values[next - 1]]) if (value < 2 ** 52) { low = Math.min(low, value); high = Math.max(high, value); }
      at = next;
    }
    if (points.length === 0) return;
    if (low > high) low = high = 0;
    const floor = y + lane.height - 5, tall = lane.height - 12;
    const level = (value) => (value >= 2 ** 52 ? y + 3 : floor - (high === low ? 0.5 : (value - low) / (high - low)) * tall);
    paint.strokeStyle = ink.ladder;
    paint.lineWidth = 1.5;
    paint.beginPath();
    points.forEach(([x, value], at) => {
      if (at === 0) paint.moveTo(x, level(value)); else paint.lineTo(x, level(value));
      paint.lineTo(at + 1 < points.length ? points[at + 1][0] : this.width, level(value));
    });
    paint.stroke();
    paint.fillStyle = ink.front;
    paint.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    points.forEach(([x, value, row], at) => {
      this.hit(x - 2, y, 5, lane.height, "sample", row);
      const room = (at + 1 < points.length ? points[at + 1][0] : this.width) - x, line = level(value);
      if (room > 34) this.clipped(this.words.rung(this.timeline.samples, row), x + 4, line < y + 14 ? line + 8 : line - 6, room - 6);
    });
  }

  // Arrows between the selection and its cause.
  arrows() {
    const { selected, timeline: { waits, runs } } = this;
    if (!selected) return;
    const { row } = selected;
    if (selected.kind === "wait" && waits.by[row] !== NONE) {
      const from = this.lanes.list.find((lane) => lane.track === waits.by[row] && (lane.kind === "calls" || lane.kind === "packets"));
      const to = this.lanes.find("waits", waits.track[row]);
      const end = this.view.axis === 0 ? waits.t1[row] : waits.s1[row];
      this.arrow(from, this.view.axis === 0 ? end - waits.lead[row] : waits.cause[row], to, end);
    }
    if (selected.kind === "run" && runs.queue[row] !== NONE) {
      const { events, packets } = this.timeline, call = lowerBound(events.seq, runs.call[row]);
      if (events.seq[call] !== runs.call[row]) return;
      const from = this.lanes.find("calls", events.track[call]);
      const to = this.lanes.find("runs", runs.track[row]);
      this.arrow(from, this.view.axis === 0 ? events.at[call] : events.seq[call], to, this.view.axis === 0 ? runs.t0[row] : runs.s0[row]);
    }
  }

  arrow(from, begin, to, end) {
    if (!from || !to) return;
    const { paint, ink } = this, middle = (lane) => lane.y - this.scroll + AXIS + Math.min(lane.height / 2, 12);
    const [x0, y0, x1, y1] = [this.x(begin), middle(from), this.x(end), middle(to)];
    const bend = Math.max(20, Math.abs(x1 - x0) / 2);
    paint.save();
    paint.beginPath();
    paint.rect(GUTTER, AXIS, this.width, this.height);
    paint.clip();
    paint.strokeStyle = paint.fillStyle = ink.pick;
    paint.lineWidth = 1.6;
    paint.beginPath();
    paint.moveTo(x0, y0);
    paint.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 5, y1);
    paint.stroke();
    paint.beginPath();
    paint.moveTo(x1, y1); paint.lineTo(x1 - 8, y1 - 4.5); paint.lineTo(x1 - 8, y1 + 4.5);
    paint.fill();
    paint.restore();
  }

  ruler() {
    const { paint, ink, view } = this;
    paint.fillStyle = ink.back;
    paint.fillRect(0, 0, this.width, AXIS);
    paint.fillStyle = ink.line;
    paint.fillRect(0, AXIS - 1, this.width, 1);
    const span = view.to - view.from, wanted = (span * 110) / (this.width - GUTTER);
    const power = 10 ** Math.floor(Math.log10(wanted));
    let step = [1, 2, 5, 10].map((times) => times * power).find((one) => one >= wanted);
    if (view.axis === 1) step = Math.max(1, Math.round(step));
    paint.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    // Round times since the first step, which the daemon's clock gives any time.
    const origin = view.axis === 0 ? this.timeline.head.begin : 0;
    for (let tick = Math.ceil((view.from - origin) / step); origin + tick * step <= view.to; tick++) {
      const at = origin + tick * step;
      const x = this.x(at);
      paint.fillStyle = ink.line;
      paint.fillRect(x, AXIS - 6, 1, 5);
      paint.fillStyle = ink.quiet;
      const text = view.axis === 0 ? ruled(tick * step, step) : "#" + number(Math.round(at));
      if (x + 3 + paint.measureText(text).width < this.width) paint.fillText(text, x + 3, AXIS / 2);
    }
    paint.fillStyle = ink.quiet;
    paint.fillText(view.axis === 0 ? "time since the first step" : "steps in order", 8, AXIS / 2);
    if (this.selected) this.needle();
  }

  needle() {
    const x = this.x(this.selected.at[this.view.axis]);
    if (x < GUTTER || x > this.width) return;
    const { paint, ink } = this;
    paint.fillStyle = ink.pick;
    paint.globalAlpha = 0.5;
    paint.fillRect(x, 0, 1, this.height);
    paint.globalAlpha = 1;
  }
}
