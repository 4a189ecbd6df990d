// The page of the agent: alarms of the box, then values, their graph, service instances and transactions, as they are now.
//
// Everything comes from the paths below scheduler/; what changes is told by scheduler/events. Nothing is kept here
// that the agent does not know.

/** Alarms in each of the two tables; an operator who has more works from the worst down. */
const ALARMS = 500;
/** Rows of the table of values; with more, the search narrows them down. */
const ROWS = 500;
/** Values read at the start, a page at a time. */
const VALUES_MOST = 20000;
/** Milliseconds after which the table of services is read again: plans change without an event of the engine, too. */
const SERVICES_AGAIN = 2000;
/** Service instances in the table. */
const INSTANCES_MOST = 1000;
/** Transactions in the list. */
const TRANSACTIONS = 200;
/** Milliseconds in which changes are gathered before something is drawn anew. */
const GATHER = 150;

const byId = (id) => document.getElementById(id);
const values = new Map();
const transactions = new Map();
let services = [];
/** What is drawn of the alarms; null until they have been read. */
let alarms = null;
/** How often alarms were asked for, and which of these answers is drawn: an older one may come later. */
const alarmReads = { begun: 0, drawn: 0 };
const wanted = new Set();
let chosen = null;

/** Makes an element: attributes, then children, which may be text. */
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const badge = (state) => make("span", { class: "state", "data-state": state }, state);
const when = (text) => new Date(text).toLocaleString(undefined, { hour12: false });

async function read(address) {
  const response = await fetch(`scheduler/${address}`, { headers: { accept: "application/json" } });
  if (!response.ok) {
    const body = await response.json().catch(() => ({}));
    throw new Error(body.Error ?? `the agent answered ${response.status}`);
  }
  return response;
}

const json = async (address) => (await read(address)).json();
const argument = (text) => encodeURIComponent(text);

/** Reads a list page by page, until `take` has had all entries or returns false. */
async function pages(first, take) {
  let address = first;
  while (address) {
    const response = await read(address);
    if (!take(await response.json())) return;
    const next = /<\/scheduler\/([^>]*)>; rel="next"/.exec(response.headers.get("link") ?? "");
    address = next?.[1];
  }
}

/** Runs something that may fail, and says so where people see it. */
async function guarded(action) {
  try {
    await action();
    byId("error").hidden = true;
  } catch (error) {
    byId("error").textContent = error.message;
    byId("error").hidden = false;
  }
}

/** Calls a function once for many calls in a short time. */
function gathered(action) {
  let timer = null;
  return () => {
    timer ??= setTimeout(() => {
      timer = null;
      guarded(async () => action());
    }, GATHER);
  };
}

// Alarms

/** One page of alarms: the worst ones, and whether there are more. */
async function someAlarms(more) {
  const response = await read(`alarms?limit=${ALARMS}${more}`);
  return { rows: await response.json(), more: response.headers.has("link") };
}

async function readAlarms() {
  const number = ++alarmReads.begun;
  const found = { open: await someAlarms(""), shelved: await someAlarms("&shelved=true") };
  if (number < alarmReads.drawn) return;
  alarmReads.drawn = number;
  // Nothing moves under the hand of the reader unless it has changed.
  const isSame = JSON.stringify(found) === JSON.stringify(alarms);
  alarms = found;
  if (!isSame) drawAlarms();
}

function drawAlarms() {
  const { open, shelved } = alarms;
  byId("alarm-count").textContent = open.rows.length === 0 ? "no alarms" : `${alarmCount(open)}: ${severities(open.rows)}`;
  byId("open").hidden = open.rows.length === 0;
  byId("open").tBodies[0].replaceChildren(...rootsFirst(open.rows).map((it) => alarmRow(it)));
  const aside = byId("shelved");
  aside.hidden = shelved.rows.length === 0;
  aside.querySelector("summary").textContent = `${alarmCount(shelved)} put aside`;
  const shelfOf = (it) => make("td", {}, `the shelf ${it.Shelf}`);
  aside.querySelector("tbody").replaceChildren(...shelved.rows.map((it) => alarmRow(it, shelfOf(it))));
}

function alarmCount({ rows, more }) {
  if (more) return `more than ${rows.length} alarms, the worst ${rows.length} shown`;
  return rows.length === 1 ? "1 alarm" : `${rows.length} alarms`;
}

/** How many there are of each severity; the agent sends the worst first. */
function severities(rows) {
  const counts = new Map();
  for (const { Severity } of rows) counts.set(Severity, (counts.get(Severity) ?? 0) + 1);
  return [...counts].map(([severity, count]) => `${count} ${severity.toLowerCase()}`).join(", ");
}

function alarmRow(it, ...more) {
  return make(
    "tr",
    { "data-alarm": it.Id },
    make("td", {}, badge(it.Severity.toLowerCase())),
    make("td", { class: "time" }, when(it.Since)),
    make("td", { class: it.Cause ? "caused" : "" }, it.Id),
    make("td", {}, it.Text, make("div", { class: "impact" }, impactText(it))),
    make("td", {}, it.Occurrences),
    make("td", {}, operatorWord(it)),
    ...more,
  );
}

/** Root causes in their order, each with the alarms below it that it is the cause of. */
function rootsFirst(rows) {
  const roots = rows.map((it) => rootOf(it, rows));
  const place = (id) => rows.findIndex((it) => it.Id === id);
  const ranked = rows.map((it, index) => ({ it, root: place(roots[index]), isRoot: roots[index] === it.Id, index }));
  ranked.sort((one, other) => one.root - other.root || other.isRoot - one.isRoot || one.index - other.index);
  return ranked.map(({ it }) => it);
}

/** The root cause among these alarms. Impacts that are looked for one after the other may make a circle for a moment. */
function rootOf(it, rows, seen = new Set()) {
  const cause = rows.find((other) => other.Id === it.Cause);
  if (!cause || seen.has(it.Id)) return it.Id;
  return rootOf(cause, rows, seen.add(it.Id));
}

/** What suffers from an alarm, and what it suffers from. */
function impactText(it) {
  const { State, Down, Degraded } = it.Impact ?? {};
  const counted = State && State !== "pending" && Down + Degraded > 0;
  const objects = counted ? `${State === "truncated" ? "more than " : ""}${Down} objects down, ${Degraded} degraded` : "";
  return [it.Cause ? `caused by ${it.Cause}` : "", objects].filter(Boolean).join("; ");
}

function operatorWord(it) {
  const word = { ack: "acknowledged by", closed: "closed by" }[it.OperatorState];
  if (!word) return "not acknowledged";
  return `${word} ${it.Operator}${it.OperatorText ? `: ${it.OperatorText}` : ""}`;
}

/** Says that the alarms may be others by now, from the moment in which the agent is not heard any more. */
function markAlarms(isLive) {
  const stale = byId("alarms-stale");
  if (!isLive && stale.hidden && alarms) {
    stale.textContent = `The agent does not answer. These were the alarms at ${when(Date.now())}; they may have changed.`;
  }
  stale.hidden = isLive || !alarms;
}

// Values

function take(status) {
  const { key, label, descriptor, state, error, details = [] } = status;
  if (state === "NONEXISTENT") values.delete(key);
  else values.set(key, { key, label, descriptor, state, why: error ?? reason(state, details) });
}

/** What a value waits for, or what it is there without. */
function reason(state, details) {
  const list = details.join("; ");
  return state === "CONFIGURED" && list ? `does without ${list}` : list;
}

async function readValues() {
  values.clear();
  await pages("status?limit=1000", (found) => {
    for (const { value } of found) take(value);
    return values.size < VALUES_MOST;
  });
  drawValues();
}

/** Reads anew those that changed: an event tells the state, not the reason. */
async function refresh(keys) {
  for (const key of keys) {
    try {
      take((await json(`status?key=${argument(key)}`)).value);
    } catch {
      values.delete(key); // it is gone by now
    }
  }
  drawValues();
}

function matching() {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (it) => words.every((word) => `${it.key} ${it.label} ${it.why}`.toLowerCase().includes(word));
  return [...values.values()].filter((it) => (wanted.size === 0 || wanted.has(it.state)) && fits(it));
}

function drawValues() {
  drawStates();
  const found = matching().sort((a, b) => (a.key < b.key ? -1 : 1));
  byId("count").textContent =
    found.length > ROWS ? `${found.length} values, the first ${ROWS} shown` : `${found.length} values`;
  byId("values").replaceChildren(...found.slice(0, ROWS).map(row));
}

function row(it) {
  const open = make("button", { class: "link", onclick: () => choose(it.key) }, it.label);
  return make(
    "tr",
    { "data-key": it.key },
    make("td", {}, badge(it.state)),
    make("td", {}, open),
    make("td", { class: "quiet" }, it.descriptor),
    make("td", {}, it.why),
  );
}

function drawStates() {
  const counts = new Map();
  for (const { state } of values.values()) counts.set(state, (counts.get(state) ?? 0) + 1);
  const focused = document.activeElement?.dataset?.state;
  const button = ([state, count]) =>
    make(
      "button",
      { type: "button", "data-state": state, "aria-pressed": wanted.has(state), onclick: () => toggle(state) },
      badge(state),
      ` ${count}`,
    );
  byId("states").replaceChildren(...[...counts].sort().map(button));
  if (focused) byId("states").querySelector(`button[data-state="${focused}"]`)?.focus();
}

function toggle(state) {
  if (!wanted.delete(state)) wanted.add(state);
  drawValues();
}

// The chosen value: why it is as it is, and what became of it.

async function choose(key) {
  chosen = key;
  await guarded(drawChosen);
}

async function drawChosen() {
  if (chosen === null) return;
  const key = chosen;
  const revisions = await json(`key-timeline?key=${argument(key)}`);
  const why = await json(`why?key=${argument(key)}`).catch(() => null);
  if (key !== chosen) return;
  const label = why?.Label ?? revisions.at(-1)?.Label ?? key;
  byId("detail-body").replaceChildren(
    make("h2", { id: "detail-label" }, label),
    make("p", { class: "quiet" }, key),
    ...(why ? reasons(why) : [make("p", {}, "It is gone.")]),
    make("h3", {}, "Timeline"),
    make("ol", { class: "plain", id: "timeline" }, ...revisions.reverse().map(revision)),
  );
  byId("detail").hidden = false;
}

function reasons(why) {
  const parts = [make("p", {}, badge(why.State), ` ${why.Because}`)];
  const draw = () => {
    byId("graph-key").value = why.Key;
    show("graph");
  };
  parts.push(make("p", {}, make("button", { class: "link", onclick: draw }, "Show its neighbourhood")));
  const chain = why.Chain.filter((it) => it.WaitsFor);
  if (chain.length > 0) {
    parts.push(make("h3", {}, "Why it waits"));
    const line = (it) => make("li", {}, value(it), ` waits for ${it.WaitsFor}`);
    parts.push(make("ol", { class: "plain" }, ...chain.map(line)));
  }
  if (why.AskedBy) {
    const { Client, Txn, Time, Trace } = why.AskedBy;
    parts.push(make("h3", {}, "Asked for"));
    parts.push(make("p", {}, `by ${Client}, ${Txn}, ${when(Time)}, trace ${Trace}`));
  }
  if (why.Leaves.length > 0) {
    parts.push(make("h3", {}, "Configuration"));
    const leaf = (it) => [
      make("dt", { title: it.OpenConfig.join("\n") }, it.Path.split("/").at(-1)),
      make("dd", { title: it.Path }, `${it.Value} `, make("span", { class: "quiet" }, `${it.Kind} `, ...owners(it.Owners))),
    ];
    parts.push(make("dl", {}, ...why.Leaves.flatMap(leaf)));
  }
  for (const [title, list] of [["Parts", why.Parts], ["Needed by", why.NeededBy]]) {
    if (list.length === 0) continue;
    parts.push(make("h3", {}, title));
    parts.push(make("ul", { class: "plain" }, ...list.map((it) => make("li", {}, badge(it.State), " ", value(it)))));
  }
  return parts;
}

/** Names of owners; those of service instances lead to them. */
function owners(names) {
  const one = (name) => {
    const tag = /^[\w-]+\[[\w-]+='[^']*'\]/.exec(name)?.[0];
    return tag ? make("button", { class: "link", "data-service": tag, onclick: () => showService(tag) }, name) : name;
  };
  return names.flatMap((name, at) => (at === 0 ? [one(name)] : [", ", one(name)]));
}

const value = (it) => make("button", { class: "link", onclick: () => choose(it.Key) }, it.Label);

function revision(it) {
  const until = it.Until ? when(it.Until) : "now";
  return make(
    "li",
    {},
    badge(it.Flags["value-state"]),
    ` ${when(it.Since)} – ${until} `,
    make("span", { class: "quiet" }, it.Flags["last-update"] ?? ""),
    it.Value ? make("pre", {}, JSON.stringify(it.Value.Data, null, 1)) : null,
  );
}

// The graph

async function drawGraph() {
  const [key, depth] = [byId("graph-key").value.trim(), byId("graph-depth").value];
  const about = key ? `key=${argument(key)}&depth=${argument(depth)}` : "";
  const text = await (await read(`graph?${about}`)).text();
  const drawing = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  byId("graph").replaceChildren(document.adoptNode(drawing));
}

function clicked(event) {
  const link = event.target.closest("a[data-key]");
  if (!link) return;
  event.preventDefault();
  choose(link.dataset.key);
}

// Services

async function readServices() {
  const found = [];
  await pages("services?limit=200", (some) => found.push(...some) < INSTANCES_MOST);
  // Nothing moves under the hand of the reader unless it has changed.
  const isSame = JSON.stringify(found) === JSON.stringify(services);
  services = found;
  if (!isSame) drawServices();
}

function drawServices() {
  const words = byId("service-search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (it) => words.every((word) => JSON.stringify(it).toLowerCase().includes(word));
  const found = services.filter(fits);
  byId("service-count").textContent = `${found.length} service instances`;
  byId("services").replaceChildren(...found.flatMap(instance));
}

function showService(tag) {
  byId("service-search").value = tag;
  drawServices();
  show("services");
}

function instance(it) {
  const states = it.Components.flatMap((component) => component.States);
  const failed = it.Failure ?? states.some((state) => state.Status === "failed");
  const status = it.Zombie ? "zombie" : failed ? "failed" : it.Ready ? "ready" : "not-reached";
  const name = make("th", { scope: "rowgroup", colspan: 5 }, `${it.Service} `, badge(status), ` ${it.Version} ${it.Failure ?? ""}`);
  const rows = it.Components.flatMap((component) => component.States.map((state) => stateRow(it, component, state)));
  return [make("tr", { "data-service": it.Service }, name), ...rows];
}

function stateRow(it, component, state) {
  const status = component.BackTracking && state.Status === "reached" ? "backs out" : state.Status;
  const action = state.Action && `action ${state.Action}${state.ActionFailure ? `: ${state.ActionFailure}` : ""}`;
  const why = [state.Failure, state.WaitsFor && `waits for ${state.WaitsFor}`, action].filter(Boolean).join("; ");
  const object = (one) => {
    const shared = one.Others.length ? make("span", { class: "quiet" }, ` with ${one.Others.join(", ")}`) : null;
    return make("li", {}, badge(one.State), " ", value(one), shared);
  };
  return make(
    "tr",
    { "data-of": it.Service, "data-state-name": state.Name },
    make("td", {}, component.Type === "self" ? "self" : `${component.Type} ${component.Name}`),
    make("td", { title: when(state.Since) }, state.Name),
    make("td", {}, badge(status)),
    make("td", {}, why),
    make("td", {}, make("ul", { class: "plain" }, ...state.Objects.map(object))),
  );
}

// Transactions

function drawTransactions() {
  const open = new Set([...byId("transactions").querySelectorAll("details[open]")].map((it) => it.dataset.seq));
  const newest = [...transactions.values()].sort((a, b) => b.SeqNum - a.SeqNum).slice(0, TRANSACTIONS);
  byId("transactions").replaceChildren(...newest.map((it) => transaction(it, open.has(String(it.SeqNum)))));
}

function transaction(it, open) {
  const failed = it.Error !== null;
  const who = it.Client ?? "the agent";
  const took = ((it.StopNs - it.StartNs) / 1e6).toFixed(1);
  const executed = it.Executed.length + it.Omitted;
  const line = `#${it.SeqNum}  ${when(it.Start)}  ${who}: ${executed} of ${it.Planned.length + it.Omitted} operations, ${took} ms `;
  return make(
    "li",
    {},
    make(
      "details",
      { "data-seq": it.SeqNum, open: open ? "" : null },
      make("summary", {}, line, badge(failed ? "failed" : "verified")),
      failed ? make("p", {}, `${it.Error}${it.Undone ? " (rolled back)" : ""}`) : null,
      operations("Planned", it.Planned),
      operations("Executed", it.Executed),
      make("p", { class: "quiet" }, `${it.TxnType}, trace ${it.Trace ?? "none"}${it.Pending.length ? `, waits: ${it.Pending.join(", ")}` : ""}`),
    ),
  );
}

function operations(title, list) {
  if (list.length === 0) return make("p", { class: "quiet" }, `${title}: nothing`);
  const line = (it) =>
    make(
      "tr",
      {},
      make("td", {}, it.Operation),
      make("td", {}, value(it)),
      make("td", {}, badge(it.Result)),
      make("td", {}, it.Error ? `${it.Error}${it.Errno ? ` (errno ${it.Errno})` : ""}` : it.Cause),
    );
  return make("table", {}, make("caption", { class: "quiet" }, title), make("tbody", {}, ...list.map(line)));
}

async function readTransactions() {
  const all = await json("stats").then((stats) => stats.TxnStats.LastSeqNum ?? 0);
  const after = Math.max(0, all - TRANSACTIONS);
  transactions.clear();
  for (const it of await json(`txn-history?after-seq=${after}&limit=${TRANSACTIONS}`)) transactions.set(it.SeqNum, it);
  drawTransactions();
}

// Views

const views = ["values", "graph", "services", "transactions"];

function show(name) {
  for (const view of views) {
    const tab = byId(`tab-${view}`);
    tab.setAttribute("aria-selected", view === name);
    tab.tabIndex = view === name ? 0 : -1;
    byId(`view-${view}`).hidden = view !== name;
  }
  if (name === "graph") guarded(drawGraph);
  if (name === "services") guarded(readServices);
}

const current = () => views.find((view) => !byId(`view-${view}`).hidden);

function walk(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const next = views[(views.indexOf(current()) + step + views.length) % views.length];
  show(next);
  byId(`tab-${next}`).focus();
}

function close() {
  chosen = null;
  byId("detail").hidden = true;
}

// What happens

function listen() {
  const stale = new Set();
  const update = gathered(async () => {
    const keys = [...stale];
    stale.clear();
    await refresh(keys);
    if (current() === "graph") await drawGraph();
    if (current() === "services") await readServices();
    await drawChosen();
  });
  const events = new EventSource("scheduler/events");
  const live = (yes) => {
    byId("live").dataset.live = yes ? "yes" : "no";
    byId("live").textContent = yes ? "live" : "connecting";
    markAlarms(yes);
  };
  // After every connection all is read: what happened before it was not told.
  events.addEventListener("open", () => guarded(readAll).then(() => live(true)));
  events.addEventListener("error", () => live(false));
  events.addEventListener("missed", gathered(readAll));
  events.addEventListener("alarms", gathered(readAlarms));
  events.addEventListener("status", ({ data }) => {
    for (const it of JSON.parse(data)) stale.add(it.key);
    update();
  });
  events.addEventListener("transaction", ({ data }) => {
    const it = JSON.parse(data);
    transactions.set(it.SeqNum, it);
    drawTransactions();
  });
}

async function readAll() {
  await readAlarms();
  await readValues();
  await readTransactions();
  if (current() === "services") await readServices();
  await drawChosen();
}

for (const view of views) byId(`tab-${view}`).addEventListener("click", () => show(view));
document.querySelector("nav").addEventListener("keydown", walk);
document.addEventListener("keydown", (event) => event.key === "Escape" && close());
byId("close").addEventListener("click", close);
byId("search").addEventListener("input", drawValues);
byId("service-search").addEventListener("input", drawServices);
byId("graph").addEventListener("click", clicked);
byId("graph-form").addEventListener("submit", (event) => {
  event.preventDefault();
  guarded(drawGraph);
});
setInterval(() => current() === "services" && !document.hidden && guarded(readServices), SERVICES_AGAIN);
listen();
