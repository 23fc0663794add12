// The panels: details of the selection, waits at the end, the table of events, the keys.

const KEYS = [
  ["\u2190 \u2192", "move the view; with Shift by a whole screen"],
  ["+ -", "zoom in, zoom out; also Ctrl with the wheel, or drag in the overview"],
  ["0", "show the whole trace"],
  ["\u2191 \u2193", "select the lane above or below"],
  ["n  p", "next and previous event of the lane, or search result"],
  ["Enter", "zoom to the selection"],
  ["c", "go to the cause: from a wake-up to its signal, from a run to its call"],
  ["/", "search: #1041, F3, p2, a call, a status, a note"],
  ["x", "lay steps out by time or in order"],
  ["b", "show what waits at the end"],
  ["w", "show why these waits do not end, as a picture"],
  ["t", "show the events on the screen as a table"],
  ["a", "show the values of all fences, or only of the busiest"],
  ["Esc", "close a panel, clear the search, then the selection"],
  ["?", "show this list"],
];

// Columns of numbers, to the right.
const NUMBERS = new Set(["time", "duration", "request", "wakes", "share"]);

// Objects of a call that its details have.
const NAMED = 16;

// Keys that type a character elsewhere.
const TYPED = /^[!-~]$/;

function element(name, content, attributes = {}) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "click") node.addEventListener("click", value); else node.setAttribute(key, value);
  }
  for (const part of [content].flat()) if (part !== null && part !== undefined) node.append(part);
  return node;
}

function table(heads, rows) {
  const head = element("thead", element("tr", heads.map((text) => element("th", text, NUMBERS.has(text) ? { scope: "col", class: "number" } : { scope: "col" }))));
  return element("table", [head, element("tbody", rows)]);
}

class Panels {
  constructor(timeline, words, go) { Object.assign(this, { timeline, words, go, head: timeline.head }); }

  link(text, select) { return element("a", text, { href: "#", click: (event) => { event.preventDefault(); select(); } }); }

  step(seq) { return this.link("#" + seq, () => this.go.step(seq)); }

  when(at) { return exact(at - this.head.begin); }

  // Title and fields of the selection.
  facts({ kind, row }) {
    const { words, timeline } = this;
    switch (kind) {
      case "event": return this.event(row);
      case "wait": return this.wait(row);
      case "packet": return this.packet(row);
      case "run": return this.run(row);
      case "mark": {
        const { marks } = timeline;
        return [words.mark(row), [["of", words.path(marks.track[row])], ["step", this.step(marks.seq[row])], ["time", this.when(marks.at[row])]]];
      }
      case "sample": {
        const { samples } = timeline, fence = samples.fence[row];
        return [`${fenceName(fence)} = ${words.value(samples, row)}`, [["fence", this.head.fences[fence][0]], ["step", this.step(samples.seq[row])], ["time", this.when(samples.at[row])]]];
      }
    }
  }

  event(row) {
    const { words, timeline: { events, marks } } = this;
    const seq = events.seq[row], fields = [["step", "#" + seq], ["of", words.path(events.track[row])], ["time", this.when(events.at[row])]];
    if (events.request[row] !== 0) fields.push(["request", events.request[row]]);
    if (events.status[row] >= 0) fields.push(["status", words.status(events.status[row])]);
    const named = words.named(row);
    for (const [fence, value] of named.slice(0, NAMED)) {
      const [text, , , hasValue] = this.head.fences[fence];
      fields.push(["fence", text]);
      if (hasValue && (words.joint(row) !== null || value != 0)) fields.push(["value", "" + value]);
    }
    if (named.length > NAMED) fields.push(["and", `${named.length - NAMED} more`]);
    if (events.wakes[row] > 0) fields.push(["wakes", events.wakes[row] === 1 ? "1 wait" : events.wakes[row] + " waits"]);
    const [ended, later] = this.go.endedBy(seq);
    for (const other of ended) fields.push(["woken", this.link(`${words.track(this.timeline.waits.track[other])}: ${words.wait(other)}`, () => this.go.select("wait", other))]);
    if (later > 0) fields.push(["woken in later steps", later === 1 ? "1 wait" : later + " waits"]);
    for (let mark = lowerBound(marks.seq, seq); mark < marks.rows && marks.seq[mark] === seq; mark++) fields.push([this.head.markKinds[marks.kind[mark]], this.head.words[marks.text[mark]]]);
    return [words.event(row), fields];
  }

  wait(row) {
    const { words, timeline: { waits } } = this;
    const fields = [
      ["of", words.path(waits.track[row])], ["event", waits.event[row]],
      ["registered", [this.step(waits.s0[row]), " at " + this.when(waits.t0[row])]],
      [waits.outcome[row] === 3 ? "pending at" : "ended", [this.step(waits.s1[row]), " at " + this.when(waits.t1[row])]],
      ["lasted", duration(waits.t1[row] - waits.t0[row])], ["outcome", words.outcome(waits.outcome[row])],
    ];
    if (waits.by[row] !== NONE) fields.push(["released by", this.link(words.path(waits.by[row]), () => this.go.cause())]);
    const parts = words.parts(row);
    const more = parts.length === 0 ? [] : [this.waterfall(parts, waits.t1[row] - waits.t0[row])];
    return ["wait for " + words.wait(row), fields, more];
  }

  // The parts of a wait's time.
  waterfall(parts, all) {
    const colors = ["--wait", "--c1", "--c3", "--c0", "--c1", "--wait", "--c2"];
    const color = (name) => `var(${colors[this.head.parts.indexOf(name)]})`;
    const bar = element("div", parts.map(([name, length]) => element("span", "", { style: `flex:${length / all};background:${color(name)}`, title: name })), { class: "parts", role: "img", "aria-label": "Parts of the wait" });
    const rows = parts.map(([name, length]) => element("tr", [
      element("td", [element("span", "", { class: "swatch", style: `background:${color(name)}` }), name]),
      element("td", duration(length), { class: "number" }), element("td", (100 * length / all).toFixed(1) + "%", { class: "number" }),
    ]));
    const beyond = this.head.hasTimes ? "gpupv trace stats TRACE --wakes has the guest's time and the link." : "The guest's time and the link are not in the trace.";
    const note = "All times are by the daemon's clock. " + beyond;
    return element("div", [bar, table(["part of the wait", "time", "share"], rows), element("p", note, { class: "note" })]);
  }

  packet(row) {
    const { words, timeline: { packets } } = this;
    const fields = [
      ["queue", words.path(packets.track[row])], ["call", [this.step(packets.s0[row]), " at " + this.when(packets.t0[row])]],
    ];
    if (!Number.isNaN(packets.given[row])) fields.push(["submitted to engine", this.when(packets.given[row])]);
    if (!Number.isNaN(packets.ran[row])) fields.push(["begun", this.when(packets.ran[row])]);
    fields.push([packets.outcome[row] === 3 ? "pending at" : "ended", [this.step(packets.s1[row]), " at " + this.when(packets.t1[row])]]);
    fields.push(["outcome", words.outcome(packets.outcome[row])]);
    if (packets.engine[row] !== NONE) fields.push(["engine", words.path(packets.engine[row])], ["submission", packets.id[row]]);
    return [words.packet(row), fields];
  }

  run(row) {
    const { words, timeline: { runs } } = this;
    return [words.run(row), [
      ["engine", words.path(runs.track[row])], ["queue", words.path(runs.queue[row])],
      ["begun", [this.step(runs.s0[row]), " at " + this.when(runs.t0[row])]],
      [runs.flags[row] & 2 ? "still running at" : "ended", [this.step(runs.s1[row]), " at " + this.when(runs.t1[row])]],
      ["ran", duration(runs.t1[row] - runs.t0[row])], ["submitted by", this.step(runs.call[row])],
    ]];
  }

  details(selected) {
    const box = document.getElementById("details");
    if (!selected) {
      box.replaceChildren(element("h2", "Nothing is selected"));
      return;
    }
    const [title, fields, more = []] = this.facts(selected);
    const list = element("dl", fields.flatMap(([name, value]) => [element("dt", name), element("dd", [value].flat().map((one) => (typeof one === "number" ? "" + one : one)))]));
    box.replaceChildren(element("h2", title), list, ...more);
  }

  blocked() {
    const { head, words } = this, box = document.querySelector("#blocked .scroll");
    if (head.blocked.length === 0) {
      box.replaceChildren(element("p", head.blockedUnknown ? "The replay ended before the trace, so what waits at its end is not known." : "Nothing waits at the end of the trace."));
      return;
    }
    const told = new Set();
    const rows = head.blocked.map(([track, what, since, step, wants, fences, why]) => {
      return element("tr", [
        element("td", words.path(track)), element("td", what),
        element("td", wants.join("\n"), { class: "wide" }),
        element("td", since === null ? "" : duration(head.end - since), { class: "number" }),
        element("td", step === null ? "" : this.step(step)), element("td", fences.map((fence) => head.fences[fence][0]).join("\n"), { class: "wide" }),
        this.reason(why, told),
      ]);
    });
    const parts = [table(["waiter", "kind", "waits for", "duration", "step", "fences", "why"], rows)];
    if (head.blockedLeftOut > 0) parts.push(element("p", `${number(head.blockedLeftOut)} more are not listed.`));
    parts.push(element("p", "gpupv why TRACE shows the same, with more about each process.", { class: "note" }));
    box.replaceChildren(...parts);
  }

  // The picture of `gpupv why`. An image runs no script.
  why() {
    document.querySelector("#why .scroll").append(
      element("img", null, { src: "data:image/svg+xml;base64," + this.head.whyPicture, alt: "The chains from each waiter to the cause; the list of waits (b) has the same in words" }),
      element("p", "gpupv why TRACE --svg FILE writes this picture.", { class: "note" }),
    );
  }

  // The cause of a wait: a sentence with the chain that leads to it.
  // The first of several waits with one cause shows it open.
  reason(why, told) {
    const reason = this.head.reasons[why], first = !told.has(why);
    told.add(why);
    const steps = reason.chain.map((text) => element("li", text));
    const back = reason.back_to === null ? null : element("p", `The chain continues at ${reason.back_to + 1}.`);
    const remarks = reason.remarks.map((text) => element("p", text, { class: "note" }));
    const sentence = element("summary", reason.sentence, reason.stuck ? { class: "bad" } : {});
    const open = first ? { open: "" } : {};
    return element("td", element("details", [sentence, element("ol", steps), back, ...remarks], open), { class: "why" });
  }

  // Events between two positions, the selected one marked.
  table(rows, total, selected) {
    const { words, timeline: { events } } = this;
    const lines = rows.map((row) => element("tr", [
      element("td", this.step(events.seq[row])), element("td", this.when(events.at[row]), { class: "number" }),
      element("td", words.path(events.track[row])), element("td", words.event(row)),
      element("td", events.request[row] === 0 ? "" : "" + events.request[row], { class: "number" }),
      element("td", words.status(events.status[row])), element("td", events.wakes[row] === 0 ? "" : "" + events.wakes[row], { class: "number" }),
    ], selected && selected.kind === "event" && selected.row === row ? { class: "picked" } : {}));
    const note = element("p", total > rows.length ? `The first ${rows.length} of ${number(total)} events; zoom in for the others.` : `${number(total)} events.`, { class: "note" });
    document.querySelector("#table .scroll").replaceChildren(note, table(["step", "time", "track", "event", "request", "status", "wakes"], lines));
  }

  // A key as it is pressed now.
  shown(key) { return document.getElementById("with-alt").checked && TYPED.test(key) ? `Alt ${key}` : key; }

  keys() {
    const rows = KEYS.map(([keys, what]) => element("tr", [element("td", keys.split(" ").filter((one) => one).flatMap((key) => [element("kbd", this.shown(key)), " "])), element("td", what)]));
    document.querySelector("#help .scroll").replaceChildren(table(["key", "action"], rows));
  }
}
