// Reads the columns that src/html/columns.rs writes; change both together.

async function inflate(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) bytes[at] = raw.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// A column of varints.
class Column {
  constructor(bytes, rows) { this.bytes = bytes; this.rows = rows; this.at = 0; }
  number() {
    const bytes = this.bytes;
    let byte = bytes[this.at++];
    if (byte < 128) return byte;
    let number = byte & 127, scale = 128;
    do {
      byte = bytes[this.at++];
      number += (byte & 127) * scale;
      scale *= 128;
    } while (byte >= 128);
    return number;
  }
  signed() {
    const number = this.number();
    return number % 2 === 0 ? number / 2 : -(number + 1) / 2;
  }
  wide() {
    const view = new DataView(this.bytes.buffer, this.bytes.byteOffset + this.at, 8);
    this.at += 8;
    return view.getBigUint64(0, true);
  }
}

// Fence values, each relative to the last value of its fence.
// A value that a number cannot hold exactly is a BigInt in `wide`.
class Values {
  constructor(column, fences) { this.column = column; this.last = new Float64Array(fences); this.wide = null; }
  next(fence) {
    this.wide = null;
    const code = this.column.number();
    if (code === 0) {
      this.wide = this.column.wide();
      return Number(this.wide);
    }
    if (fence >= this.last.length) return 0;
    const zigzag = code - 1;
    this.last[fence] += zigzag % 2 === 0 ? zigzag / 2 : -(zigzag + 1) / 2;
    return this.last[fence];
  }
}

const NONE = 0xffffffff;

function readEvents(of, head) {
  const rows = of("event.at").rows, columns = {
    at: new Float64Array(rows), seq: new Float64Array(rows), track: new Uint32Array(rows),
    name: new Uint32Array(rows), status: new Int16Array(rows), request: new Float64Array(rows),
    fence: new Uint32Array(rows), value: new Float64Array(rows), wakes: new Uint32Array(rows),
    wide: new Map(), others: new Map(), any: new Set(), rows,
  };
  const [at, seq, track, name, status] = ["at", "seq", "track", "name", "status"].map((one) => of("event." + one));
  const [request, fence, others, other, wakes] = ["request", "fence", "others", "other", "wakes"].map((one) => of("event." + one));
  const [values, otherValues] = ["value", "otherValue"].map((one) => new Values(of("event." + one), head.fences.length));
  const requests = new Float64Array(head.tracks.length);
  let now = 0, step = 0;
  for (let row = 0; row < rows; row++) {
    columns.at[row] = now += at.signed();
    columns.seq[row] = step += seq.signed();
    const of = columns.track[row] = track.number();
    columns.name[row] = name.number();
    columns.status[row] = status.number() - 1;
    columns.request[row] = requests[of] += request.signed();
    const named = fence.number();
    columns.fence[row] = named === 0 ? NONE : named - 1;
    if (named !== 0) {
      columns.value[row] = values.next(named - 1);
      if (values.wide !== null) columns.wide.set(row, values.wide);
    }
    const more = others.number();
    if (more % 2 === 1) columns.any.add(row);
    if (more > 1) {
      columns.others.set(row, Array.from({ length: more >>> 1 }, () => {
        const named = other.number(), value = otherValues.next(named);
        return [named, otherValues.wide ?? value];
      }));
    }
    columns.wakes[row] = wakes.number();
  }
  return columns;
}

// Looks up the time of a step by sequence number, as Steps in columns.rs does.
function stepTimes(events) {
  let place = 0;
  return (seq) => {
    if (events.rows === 0) return 0;
    if (events.seq[place] !== seq) place = Math.min(lowerBound(events.seq, seq), events.rows - 1);
    return events.at[place];
  };
}

// The first index whose number is not below `number`.
function lowerBound(sorted, number, from = 0, to = sorted.length) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (sorted[middle] < number) from = middle + 1; else to = middle;
  }
  return from;
}

function readTargets(columns, row, counts, fence, values) {
  const count = counts.number();
  columns.first[row] = columns.targets.fence.length;
  for (let at = 0; at < count; at++) {
    const named = fence.number();
    columns.targets.fence.push(named);
    const value = values.next(named);
    columns.targets.value.push(values.wide === null ? value : values.wide);
  }
  columns.count[row] = count;
}

function newSlices(rows) {
  return {
    rows, t0: new Float64Array(rows), t1: new Float64Array(rows), s0: new Float64Array(rows), s1: new Float64Array(rows),
    track: new Uint32Array(rows), outcome: new Uint16Array(rows), first: new Uint32Array(rows),
    count: new Uint16Array(rows), targets: { fence: [], value: [] },
  };
}

function readWaits(of, head, events) {
  const rows = of("wait.seq").rows, columns = newSlices(rows);
  Object.assign(columns, {
    event: new Float64Array(rows), kind: new Uint8Array(rows), cause: new Float64Array(rows), lead: new Float64Array(rows),
    by: new Uint32Array(rows).fill(NONE), packet: new Uint32Array(rows).fill(NONE), mutex: new Map(),
  });
  const [track, event, kind, seq, at] = ["track", "event", "kind", "seq", "at"].map((one) => of("wait." + one));
  const [length, end, outcome, counts, fence] = ["length", "end", "outcome", "targets", "fence"].map((one) => of("wait." + one));
  const [cause, before, lead, by, packet] = ["cause", "before", "lead", "by", "packet"].map((one) => of("wait." + one));
  const values = new Values(of("wait.value"), head.fences.length), begins = stepTimes(events), ends = stepTimes(events);
  let step = 0, name = 0;
  for (let row = 0; row < rows; row++) {
    columns.track[row] = track.number();
    columns.event[row] = name += event.signed();
    const code = columns.kind[row] = kind.number();
    columns.s0[row] = step += seq.signed();
    columns.t0[row] = begins(step) + at.signed();
    const last = columns.s1[row] = step + length.signed();
    columns.t1[row] = ends(last) + end.signed();
    columns.outcome[row] = outcome.number();
    readTargets(columns, row, counts, fence, values);
    if (code === 2) columns.mutex.set(row, [fence.number(), fence.number()]);
    if (cause.number() === 0) continue;
    columns.cause[row] = last - before.signed();
    columns.lead[row] = lead.number();
    columns.by[row] = by.number();
    const of = packet.number();
    if (of !== 0) columns.packet[row] = of - 1;
  }
  return columns;
}

function readPackets(of, head, events) {
  const rows = of("packet.seq").rows, columns = newSlices(rows);
  Object.assign(columns, {
    kind: new Uint8Array(rows), given: new Float64Array(rows).fill(NaN), ran: new Float64Array(rows).fill(NaN),
    engine: new Uint32Array(rows), id: new Float64Array(rows),
  });
  const [queue, kind, seq, at, given] = ["queue", "kind", "seq", "at", "given"].map((one) => of("packet." + one));
  const [ran, length, end, outcome] = ["ran", "length", "end", "outcome"].map((one) => of("packet." + one));
  const [engine, id, counts, fence] = ["engine", "id", "targets", "fence"].map((one) => of("packet." + one));
  const values = new Values(of("packet.value"), head.fences.length), begins = stepTimes(events), ends = stepTimes(events);
  let step = 0, last = 0;
  for (let row = 0; row < rows; row++) {
    columns.track[row] = queue.number();
    columns.kind[row] = kind.number();
    columns.s0[row] = step += seq.signed();
    const begin = columns.t0[row] = begins(step) + at.signed();
    const toEngine = given.number(), toRun = ran.number();
    if (toEngine !== 0) columns.given[row] = begin + toEngine - 1;
    if (toRun !== 0) columns.ran[row] = (toEngine !== 0 ? columns.given[row] : begin) + toRun - 1;
    const until = columns.s1[row] = step + length.signed();
    columns.t1[row] = ends(until) + end.signed();
    columns.outcome[row] = outcome.number();
    const on = engine.number();
    columns.engine[row] = on === 0 ? NONE : on - 1;
    columns.id[row] = last += id.signed();
    readTargets(columns, row, counts, fence, values);
  }
  return columns;
}

function readRuns(of) {
  const rows = of("run.begin").rows, columns = newSlices(rows);
  Object.assign(columns, { queue: new Uint32Array(rows), id: new Float64Array(rows), call: new Float64Array(rows), flags: new Uint8Array(rows) });
  const [engine, queue, id, begin, length] = ["engine", "queue", "id", "begin", "length"].map((one) => of("run." + one));
  const [seq, last, call, flags] = ["seq", "last", "call", "flags"].map((one) => of("run." + one));
  let now = 0, step = 0, number = 0;
  for (let row = 0; row < rows; row++) {
    columns.track[row] = engine.number();
    const from = queue.number();
    columns.queue[row] = from === 0 ? NONE : from - 1;
    columns.id[row] = number += id.signed();
    columns.t0[row] = now += begin.signed();
    columns.t1[row] = now + length.number();
    columns.s0[row] = step += seq.signed();
    columns.s1[row] = step + last.signed();
    columns.call[row] = step - call.signed();
    columns.flags[row] = flags.number();
  }
  return columns;
}

function readSamples(of, head, events) {
  const rows = of("sample.seq").rows, columns = {
    rows, fence: new Uint32Array(rows), seq: new Float64Array(rows), at: new Float64Array(rows),
    value: new Float64Array(rows), wide: new Map(),
  };
  const [fence, seq, at] = ["fence", "seq", "at"].map((one) => of("sample." + one));
  const values = new Values(of("sample.value"), head.fences.length), times = stepTimes(events);
  let step = 0;
  for (let row = 0; row < rows; row++) {
    const named = columns.fence[row] = fence.number();
    columns.seq[row] = step += seq.signed();
    columns.at[row] = times(step) + at.signed();
    columns.value[row] = values.next(named);
    if (values.wide !== null) columns.wide.set(row, values.wide);
  }
  return columns;
}

function readMarks(of, events) {
  const rows = of("mark.seq").rows, columns = {
    rows, seq: new Float64Array(rows), at: new Float64Array(rows), track: new Uint32Array(rows),
    kind: new Uint8Array(rows), text: new Uint32Array(rows),
  };
  const [seq, at, track, kind, text] = ["seq", "at", "track", "kind", "text"].map((one) => of("mark." + one));
  const times = stepTimes(events);
  let step = 0;
  for (let row = 0; row < rows; row++) {
    columns.seq[row] = step += seq.signed();
    columns.at[row] = times(step) + at.signed();
    columns.track[row] = track.number();
    columns.kind[row] = kind.number();
    columns.text[row] = text.number();
  }
  return columns;
}

async function readTimeline(text) {
  const bytes = await inflate(text);
  const size = new DataView(bytes.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
  const columns = new Map();
  let from = 4 + size;
  for (const [name, rows, length] of head.columns) {
    columns.set(name, new Column(bytes.subarray(from, from + length), rows));
    from += length;
  }
  const of = (name) => columns.get(name);
  const events = readEvents(of, head);
  return {
    head, events, waits: readWaits(of, head, events), packets: readPackets(of, head, events), runs: readRuns(of),
    samples: readSamples(of, head, events), marks: readMarks(of, events),
  };
}
