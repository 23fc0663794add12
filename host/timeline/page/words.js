// Texts of numbers and rows, equal to those in the text output of the same trace.

function duration(nanos) {
  const sign = nanos < 0 ? "-" : "";
  const size = Math.abs(nanos);
  for (const [unit, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) {
    if (size >= unit) return sign + (size / unit).toFixed(3) + " " + name;
  }
  return sign + Math.round(size) + " ns";
}

// A time with nanosecond precision.
function exact(nanos) {
  if (nanos < 1000) return duration(nanos);
  return `${number(Math.floor(nanos / 1000))}.${String(Math.round(nanos) % 1000).padStart(3, "0")} us`;
}

// A time on the ruler, with enough decimals to distinguish neighboring marks.
function ruled(nanos, step) {
  const [unit, name] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]].find(([unit]) => Math.abs(nanos) >= unit) ?? [1, "ns"];
  return (nanos / unit).toFixed(Math.max(0, Math.ceil(Math.log10(unit / step) - 1e-9))) + " " + name;
}

const fenceName = (fence) => (fence === NONE || fence === null ? "?" : "F" + fence);

const number = (count) => String(count).replace(/\B(?=(\d{3})+$)/g, "\u202f");

// Objects of one call or wait that a text has.
const LISTED = 4;

class Words {
  constructor(timeline) { this.timeline = timeline; this.head = timeline.head; }

  track(id) { return id === NONE ? "ring" : this.head.tracks[id][0]; }

  path(id) {
    if (id === NONE) return "ring";
    const parent = this.head.tracks[id][1];
    return (parent === null ? "" : this.path(parent) + " / ") + this.head.tracks[id][0];
  }

  status(code) { return code < 0 ? "" : this.head.statuses[code]; }

  outcome(code) { return code >= 6 ? this.head.statuses[code - 6] : ["done", "cancelled", "dropped", "pending", "passed", "fence destroyed"][code]; }

  // A mutex or semaphore has no value.
  target(fence, joint, value) { return this.head.fences[fence]?.[3] === false ? fenceName(fence) : `${fenceName(fence)} ${joint} ${value}`; }

  // Objects with their values, not all of many.
  list(targets, joint, count = targets.length) {
    const texts = targets.slice(0, LISTED).map(([fence, value]) => this.target(fence, joint, value));
    if (count > LISTED) texts.push(`${count - LISTED} more`);
    return texts.join(", ");
  }

  targets(columns, row, joint) {
    const { fence, value } = columns.targets, first = columns.first[row], count = columns.count[row];
    return this.list(Array.from({ length: Math.min(count, LISTED) }, (_, at) => [fence[first + at], value[first + at]]), joint, count);
  }

  // The objects that a call names.
  named(row) {
    const { events } = this.timeline;
    return events.fence[row] === NONE ? [] : [[events.fence[row], this.value(events, row)], ...(events.others.get(row) ?? [])];
  }

  value(columns, row) { return columns.wide.has(row) ? columns.wide.get(row) : columns.value[row]; }

  // A value beside a ladder, where the digits of the value that a reset stores would be cut off.
  rung(columns, row) {
    const value = this.value(columns, row);
    return value === 0xffff_ffff_ffff_ffffn ? "MAX" : "" + value;
  }

  // Between an object of a call and its value; null if the call gives none a value.
  joint(row) {
    const name = this.head.words[this.timeline.events.name[row]];
    return name.includes("Wait") ? ">=" : name.includes("Signal") ? "=" : null;
  }

  event(row) {
    const { events } = this.timeline, name = this.head.words[events.name[row]];
    let text = name;
    const named = this.named(row);
    if (named.length > 0) {
      const joint = this.joint(row);
      text += " " + (joint === null ? fenceName(named[0][0]) : this.list(named, joint));
      if (events.any.has(row) && named.length > 1) text += " (any)";
    }
    const status = this.status(events.status[row]);
    return status === "" || status === "SUCCESS" ? text : text + " " + status;
  }

  wait(row) {
    const { waits } = this.timeline;
    if (waits.kind[row] === 2) {
      const [mutex, key] = waits.mutex.get(row);
      return `keyed mutex 0x${mutex.toString(16)} key ${key}`;
    }
    return this.targets(waits, row, ">=") + (waits.kind[row] === 1 ? " (any)" : "");
  }

  packet(row) {
    const { packets } = this.timeline;
    switch (packets.kind[row]) {
      case 1: return "signal " + this.targets(packets, row, "=");
      case 2: return "wait " + this.targets(packets, row, ">=");
      default: return packets.engine[row] === NONE ? "command" : "command " + packets.id[row];
    }
  }

  run(row) {
    const { runs } = this.timeline;
    return `${runs.flags[row] & 1 ? "hang, " : ""}submission ${runs.id[row]}`;
  }

  mark(row) {
    const { marks } = this.timeline;
    return `${this.head.markKinds[marks.kind[row]]}: ${this.head.words[marks.text[row]]}`;
  }

  // The parts of a wait, names and durations, as in parts.rs.
  parts(row) {
    const { waits, packets } = this.timeline;
    if (waits.by[row] === NONE) return [];
    const [unsubmitted, queued, given, runs, signalQueued, unsignaled, late] = this.head.parts;
    const parts = [], end = waits.t1[row], caused = end - waits.lead[row];
    let from = waits.t0[row];
    const until = (name, at) => {
      const to = Math.min(Math.max(at, from), end);
      if (to > from) { parts.push([name, to - from]); from = to; }
    };
    const packet = waits.packet[row];
    if (packet === NONE) {
      until(unsignaled, caused);
    } else {
      until(unsubmitted, packets.t0[packet]);
      if (!Number.isNaN(packets.given[packet])) until(queued, packets.given[packet]);
      if (!Number.isNaN(packets.ran[packet])) until(given, packets.ran[packet]);
      const isOver = !Number.isNaN(packets.ran[packet]) && this.outcome(packets.outcome[packet]) === "done";
      until(runs, isOver ? Math.min(packets.t1[packet], caused) : caused);
      until(signalQueued, caused);
    }
    until(late, end);
    return parts;
  }
}
