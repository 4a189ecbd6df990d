// The page of the agent. Start here: addresses lead to views, events and a clock say what is read again.
//
// Everything comes from the paths below scheduler/. Nothing is kept here that the agent does not know, and whatever a
// reader has chosen is in the address (route.js).

import { markAlarms, readAlarms, unfold } from "./alarms.js";
import { choose, drawChosen } from "./detail.js";
import { byId, gathered, guarded, link, make, tick } from "./dom.js";
import { drawGraph, fillGraphForm } from "./graph.js";
import { drawInterfaceView, readInterfaces } from "./interfaces.js";
import { drawOverview, drawVerdict, readAgent, readSessions } from "./overview.js";
import { address, changed, current } from "./route.js";
import { drawServices, readServices } from "./services.js";
import { drawTransactions, readTransactions, takeTransaction } from "./transactions.js";
import { drawValues, readValues, refresh } from "./values.js";
import { WORDS } from "./words.js";

/** Milliseconds after which what changes without an event is read again: plans of services, sessions, rates. */
const AGAIN = 2000;
/** Milliseconds after which texts such as `5 s ago` are brought up to date. */
const TICK = 1000;
/** Steps from a value that the graph shows around it. */
const DEPTH = "2";

/** Views in the order of their tabs, with the words that each explains. */
const VIEWS = {
  overview: { title: "Overview", draw: drawOverview, words: ["severities", "effects", "values", "services", "sessions", "links"] },
  interfaces: { title: "Interfaces", draw: drawInterfaceView, words: ["links", "effects"] },
  services: { title: "Services", draw: drawServices, words: ["services", "values"] },
  values: { title: "Values", draw: drawValues, words: ["values"] },
  graph: { title: "Graph", draw: fillGraphForm, words: ["values"] },
  transactions: { title: "Changes", draw: drawTransactions, words: ["operations"] },
};
const NAMES = Object.keys(VIEWS);

/** Where the reader is, by the address. */
function placeNow() {
  const { view, args } = current(NAMES);
  const list = (name) => (args.get(name) ?? "").split(" ").filter(Boolean);
  return {
    view,
    search: args.get("search") ?? "",
    states: list("state"),
    onlyWrong: args.get("wrong") === "1",
    value: args.get("value") ?? "",
    open: args.get("open") ?? "",
    alarms: list("alarm"),
    around: args.get("around") ?? "",
    depth: args.get("depth") ?? DEPTH,
    with: (change) => changed(NAMES, change),
  };
}

let shown = null;
/** How far down the reader was in each address that Back may lead to. */
const positions = new Map();

/** Shows what the address says. */
async function follow() {
  const place = placeNow();
  const isOther = shown?.view !== place.view;
  shown = place;
  for (const name of NAMES) {
    const tab = byId(`tab-${name}`);
    tab.href = address(name, { wrong: place.onlyWrong });
    if (name === place.view) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
    byId(`view-${name}`).hidden = name !== place.view;
  }
  for (const input of document.querySelectorAll(".search")) {
    if (input !== document.activeElement) input.value = place.search;
  }
  byId("only-wrong").checked = place.onlyWrong;
  draw();
  await guarded(async () => {
    await unfold(place.alarms);
    if (place.view === "graph") await drawGraph(place);
    if (isOther) await readView();
    // Meanwhile the reader may have gone on, and the page follows the newer address.
    if (shown === place) await choose(place);
  });
  if (isOther && shown === place) window.scrollTo(0, positions.get(location.hash) ?? 0);
}

/** Draws the view again with what is known. */
function draw() {
  drawVerdict();
  VIEWS[shown.view].draw(shown);
}

/** Reads what the view shows and no event tells. */
async function readView() {
  const { view } = shown;
  await readAgent();
  if (view === "overview") await readSessions();
  if (view === "overview" || view === "interfaces") await readInterfaces();
  if (view === "overview" || view === "services") await readServices();
  draw();
}

async function readAll() {
  await readAlarms();
  await readAgent();
  await readValues();
  await readTransactions();
  await readServices();
  await readInterfaces();
  await readView();
  await unfold(shown.alarms);
  if (shown.view === "graph") await drawGraph(shown);
  await drawChosen(shown);
}

/** Puts another argument into the address. A search that goes on does not fill the list of Back. */
function go(change, isNew = true) {
  const to = changed(NAMES, change);
  if (isNew) {
    location.hash = to;
  } else {
    history.replaceState(null, "", to);
    follow();
  }
}

/** Follows the events of the agent, as long as the page is shown. */
function listen() {
  const stale = new Set();
  const update = gathered(async () => {
    const keys = [...stale];
    stale.clear();
    await refresh(keys);
    await readView();
    if (shown.view === "graph") await drawGraph(shown);
    await drawChosen(shown);
  });
  const events = new EventSource("scheduler/events");
  const live = (yes) => {
    byId("live").dataset.live = yes ? "yes" : "no";
    byId("live").textContent = yes ? "live" : "connecting";
    markAlarms(yes);
  };
  // After every connection all is read: what happened before it was not told.
  events.addEventListener("open", () => guarded(async () => {
    await readAll();
    live(true);
  }));
  events.addEventListener("error", () => live(false));
  events.addEventListener("missed", gathered(readAll));
  events.addEventListener("alarms", gathered(async () => {
    await readAlarms();
    draw();
  }));
  events.addEventListener("status", ({ data }) => {
    for (const it of JSON.parse(data)) stale.add(it.key);
    update();
  });
  events.addEventListener("transaction", ({ data }) => guarded(async () => {
    await takeTransaction(JSON.parse(data));
    draw();
  }));
  // A browser keeps a page that was left for Back, with its connection, of which it has six for one agent.
  window.addEventListener("pagehide", () => events.close(), { once: true });
}

/** The words of a view with what they mean, for those who have no pointer to hover with. */
function legend(groups) {
  const words = groups.flatMap((group) => Object.entries(WORDS[group]));
  const unique = [...new Map(words)];
  const line = ([word, text]) => make("div", {}, make("dt", {}, make("span", { class: "state", "data-state": word }, word)), make("dd", {}, text));
  return make("details", { class: "legend" }, make("summary", {}, "What the words mean"), make("dl", {}, ...unique.map(line)));
}

function begin() {
  for (const [name, { title, words }] of Object.entries(VIEWS)) {
    const tab = link(address(name), title);
    tab.id = `tab-${name}`;
    byId("tabs").append(tab);
    byId(`view-${name}`).append(legend(words));
  }
  window.addEventListener("hashchange", follow);
  window.addEventListener("scroll", () => positions.set(location.hash, window.scrollY), { passive: true });
  for (const input of document.querySelectorAll(".search")) {
    input.addEventListener("input", () => go({ search: input.value }, false));
  }
  byId("only-wrong").addEventListener("change", ({ target }) => go({ wrong: target.checked }));
  byId("close").addEventListener("click", () => go({ value: "" }));
  document.addEventListener("keydown", (event) => event.key === "Escape" && shown.value && go({ value: "" }));
  byId("graph-form").addEventListener("submit", (event) => {
    event.preventDefault();
    go({ around: byId("graph-key").value.trim(), depth: byId("graph-depth").value });
  });
  setInterval(tick, TICK);
  setInterval(() => !document.hidden && byId("live").dataset.live === "yes" && guarded(readView), AGAIN);
  window.addEventListener("pageshow", ({ persisted }) => persisted && listen());
  follow();
  listen();
}

begin();
