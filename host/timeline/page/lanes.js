// The lanes from top to bottom: calls, waits and queues of each process, engines of each adapter, then fences.

const ROW = 13, ROWS_MAX = 8, LADDERS_FIRST = 6;

// Groups rows by `keys[row]`, which is below `count`; each list is in row order.
function grouped(keys, rows, count, filter) {
  const sizes = new Uint32Array(count);
  for (let row = 0; row < rows; row++) if (keys[row] < count && (!filter || filter(row))) sizes[keys[row]]++;
  const lists = Array.from(sizes, (size) => new Uint32Array(size));
  sizes.fill(0);
  for (let row = 0; row < rows; row++) {
    const key = keys[row];
    if (key < count && (!filter || filter(row))) lists[key][sizes[key]++] = row;
  }
  return lists;
}

function picked(list, column) {
  const out = new Float64Array(list.length);
  for (let at = 0; at < list.length; at++) out[at] = column[list[at]];
  return out;
}

// The rows in ascending order of a column. Equal rows stay in their order.
function ascending(list, column) {
  for (let at = 1; at < list.length; at++) {
    if (column[list[at]] < column[list[at - 1]]) return list.slice().sort((one, other) => column[one] - column[other]);
  }
  return list;
}

// Arranges the overlapping slices of one axis in rows without overlap. Slices beyond the last row are only counted.
class Stack {
  constructor(list, begin, end) {
    this.list = ascending(list, begin);
    this.begin = picked(this.list, begin);
    this.end = picked(this.list, end);
    const level = new Uint8Array(list.length), free = [];
    let most = 0;
    for (let at = 0; at < list.length; at++) {
      let row = 0;
      while (row < free.length && free[row] > this.begin[at]) row++;
      if (row === 255) row = 254;
      free[row] = this.end[at];
      level[at] = row;
      if (row >= most) most = row + 1;
    }
    this.rows = most;
    // Slices of the rows that are drawn one by one.
    this.lines = grouped(level, list.length, Math.min(most, ROWS_MAX));
    this.lineEnds = this.lines.map((line) => [picked(line, this.begin), picked(line, this.end)]);
  }

  // The number of overlapping slices: positions where it changes, and the number from there on.
  depth() {
    if (!this.depths) {
      const { begin } = this, ends = Float64Array.from(this.end).sort();
      const at = new Float64Array(begin.length * 2), count = new Uint32Array(begin.length * 2);
      let opened = 0, closed = 0, now = 0, most = 0;
      for (let place = 0; place < at.length; place++) {
        // At equal positions, begins count before ends, so that no slice ends before it begins.
        if (opened < begin.length && begin[opened] <= ends[closed]) { at[place] = begin[opened++]; now++; }
        else { at[place] = ends[closed++]; now--; }
        count[place] = now;
        most = Math.max(most, now);
      }
      this.depths = { at, count, most, peaks: peaksOf(count) };
    }
    return this.depths;
  }
}

// The maximum of each 64 values, and of each 64 of those: for a fast maximum of any range.
function peaksOf(counts) {
  const levels = [counts];
  while (levels[levels.length - 1].length > 64) {
    const below = levels[levels.length - 1], above = new Float64Array(Math.ceil(below.length / 64));
    for (let at = 0; at < below.length; at++) if (below[at] > above[at >>> 6]) above[at >>> 6] = below[at];
    levels.push(above);
  }
  return levels;
}

function peak(levels, from, to) {
  let most = 0;
  for (let level = 0; from < to; level++) {
    const last = level === levels.length - 1;
    while (from < to && (last || from % 64 !== 0)) most = Math.max(most, levels[level][from++]);
    while (from < to && to % 64 !== 0) most = Math.max(most, levels[level][--to]);
    from /= 64;
    to /= 64;
  }
  return most;
}

function sumsOf(list, counts) {
  const sums = new Uint32Array(list.length + 1);
  for (let at = 0; at < list.length; at++) sums[at + 1] = sums[at] + (counts(list[at]) ? 1 : 0);
  return sums;
}

class Lanes {
  constructor(timeline) {
    this.timeline = timeline;
    const { head, events, waits, packets, runs, samples, marks } = timeline;
    const count = head.tracks.length;
    this.colors = new Uint8Array(count);
    let processes = 0;
    head.tracks.forEach(([, parent, kind], id) => {
      if (kind === "process") this.colors[id] = processes++ % 6;
      else if (parent !== null) this.colors[id] = this.colors[parent];
    });
    this.calls = grouped(events.track, events.rows, count);
    this.waits = grouped(waits.track, waits.rows, count);
    this.packets = grouped(packets.track, packets.rows, count);
    // The engine has its packets in the order in which it was given them, which is not that of their calls.
    this.given = grouped(packets.engine, packets.rows, count, (row) => !Number.isNaN(packets.given[row]));
    this.given.forEach((list) => list.sort((one, other) => packets.given[one] - packets.given[other] || packets.id[one] - packets.id[other]));
    this.givenSteps = this.stepsOf(packets, events);
    this.runs = grouped(runs.track, runs.rows, count);
    this.marks = grouped(marks.track, marks.rows, count);
    this.samples = grouped(samples.fence, samples.rows, head.fences.length);
    this.isRefused = head.statuses.map((name) => !["SUCCESS", "PENDING", "TIMEOUT", "ABANDONED"].includes(name));
    this.allFences = false;
    this.folded = new Set();
    this.axis = 0;
    this.stacks = new Map();
    this.lay();
  }

  // The step in which an engine was given each packet: the first one at that time or after it.
  stepsOf(packets, events) {
    return Float64Array.from(packets.given, (at, row) => {
      // A part of a trace does not have the steps before it.
      if (Number.isNaN(at) || !(at >= events.at[0])) return packets.s0[row];
      const step = events.seq[lowerBound(events.at, at)] ?? packets.s1[row];
      return Math.min(Math.max(step, packets.s0[row]), packets.s1[row]);
    });
  }

  // Tracks in tree order, with depths.
  tree() {
    const { tracks } = this.timeline.head, children = tracks.map(() => []), roots = [];
    tracks.forEach(([, parent], id) => (parent === null ? roots : children[parent]).push(id));
    const rank = (id) => ["vm", "kernel", "adapter"].indexOf(tracks[id][2]);
    roots.sort((one, other) => rank(one) - rank(other) || one - other);
    const list = [], walk = (id, depth) => { list.push([id, depth]); children[id].forEach((child) => walk(child, depth + 1)); };
    roots.forEach((id) => walk(id, 0));
    return list;
  }

  lay() {
    const { head } = this.timeline;
    this.list = [];
    const hidden = new Set();
    for (const [id, depth] of this.tree()) {
      const [name, parent, kind] = head.tracks[id];
      if (parent !== null && (hidden.has(parent) || this.folded.has(parent))) { hidden.add(id); continue; }
      this.ofTrack(id, depth, name, kind);
    }
    this.ladders();
    let y = 0;
    for (const lane of this.list) { lane.y = y; y += lane.height; }
    this.height = y;
  }

  add(lane) { this.list.push(lane); }

  ofTrack(id, depth, name, kind) {
    const marks = this.marks[id];
    if (kind === "queue" && this.packets[id].length === 0 && marks.length === 0) return;
    if (kind === "engine" && this.runs[id].length + this.given[id].length + marks.length === 0) return;
    if (kind === "kernel" && this.calls[id].length + marks.length === 0) return;
    const base = { track: id, depth, color: this.colors[id] };
    if (kind === "vm" || kind === "adapter") this.add({ ...base, kind: "group", label: name, height: 20, list: this.calls[id] });
    if (kind === "process" || kind === "kernel") this.add({ ...base, kind: "calls", label: name, height: 18, list: this.calls[id] });
    if (this.waits[id].length > 0) {
      const { t0, t1, s0, s1 } = this.timeline.waits;
      this.stack({ ...base, kind: "waits", label: "waits", depth: depth + 1 }, this.waits[id], [[t0, t1], [s0, s1]]);
    }
    if (this.packets[id].length > 0) {
      const { t0, t1, s0, s1 } = this.timeline.packets;
      this.stack({ ...base, kind: "packets", label: name }, this.packets[id], [[t0, t1], [s0, s1]]);
    }
    if (kind === "engine") this.ofEngine(base, id, name);
  }

  ofEngine(base, id, name) {
    const { runs, packets } = this.timeline;
    const list = this.runs[id];
    this.add({
      ...base, kind: "runs", label: name, height: 20, list,
      time: [picked(list, runs.t0), picked(list, runs.t1)], order: [picked(list, runs.s0), picked(list, runs.s1)],
    });
    if (this.given[id].length > 0) {
      const axes = [[packets.given, packets.t1], [this.givenSteps, packets.s1]];
      this.stack({ ...base, kind: "packets", label: "hardware queue", depth: base.depth + 1 }, this.given[id], axes);
    }
  }

  // A lane of slices, which overlap otherwise by time than by steps.
  stack(lane, list, axes) {
    const key = [this.axis, lane.kind, lane.label, lane.track].join();
    lane.stack = this.stacks.get(key) ?? new Stack(list, ...axes[this.axis]);
    this.stacks.set(key, lane.stack);
    lane.list = list;
    lane.height = 4 + ROW * Math.max(1, Math.min(lane.stack.rows, ROWS_MAX));
    this.add(lane);
  }

  ladders() {
    const { head, samples } = this.timeline;
    const busy = head.fences.map((fence, id) => [fence[1] + fence[2], id]).filter(([, id]) => this.samples[id].length > 0);
    busy.sort((one, other) => other[0] - one[0] || one[1] - other[1]);
    const shown = this.allFences ? busy : busy.slice(0, LADDERS_FIRST);
    if (busy.length === 0) return;
    const left = busy.length - shown.length;
    const label = left > 0 ? `fences (${left} more: press a)` : "fences";
    this.add({ kind: "group", label, height: 20, depth: 0, track: NONE, color: 0 });
    for (const [, id] of shown.sort((one, other) => one[1] - other[1])) {
      const list = this.samples[id];
      this.add({
        kind: "ladder", label: head.fences[id][0], depth: 1, height: 40, track: NONE, fence: id, color: 0, list,
        time: [picked(list, samples.at)], order: [picked(list, samples.seq)], value: picked(list, samples.value),
      });
    }
  }

  // Positions of a list of events on an axis.
  positions(lane, axis) {
    lane.positions ??= [null, null];
    if (lane.positions[axis] === null) {
      const { events } = this.timeline;
      lane.positions[axis] = picked(lane.list, axis === 0 ? events.at : events.seq);
      lane.refused ??= sumsOf(lane.list, (row) => events.status[row] >= 0 && this.isRefused[events.status[row]]);
    }
    return lane.positions[axis];
  }

  // The kind of lane with the events and marks of a track.
  laneOf(track) {
    const kind = this.timeline.head.tracks[track][2];
    return { vm: "group", adapter: "group", engine: "runs", queue: "packets" }[kind] ?? "calls";
  }

  find(kind, track, label) {
    return this.list.find((lane) => lane.kind === kind && lane.track === track && (!label || lane.label === label));
  }
}
