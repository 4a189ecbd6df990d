// The front view: is anything wrong, since when, and who changed what last.

import { json } from "./api.js";
import { openAlarms } from "./alarms.js";
import { ago, badge, byId, cell, counted, left, link, long, make, redraw, when } from "./dom.js";
import { drawInterfaces, wrongLinks } from "./interfaces.js";
import { address } from "./route.js";
import { serviceCount, wrongServices } from "./services.js";
import { drawLastChanges, lastChange } from "./transactions.js";
import { wrongValues } from "./values.js";

/** Rows of each list here; the views have all. */
const FEW = 8;
/** Objects of a maintenance session that are named. */
const OBJECTS = 20;
const MS_PER_NS = 1e-6;

let agent = null;
let sessions = [];
/** Time of the rollback of the commit that waits, by the clock of this browser. */
let rollbackAt = null;

export async function readAgent() {
  agent = await json("agent");
  const time = agent.Unconfirmed ? Date.now() + agent.Unconfirmed.LeftNs * MS_PER_NS : null;
  // The clock of the browser is another one: a countdown that jumps by less than a second stays.
  if (time === null || rollbackAt === null || Math.abs(time - rollbackAt) > 1000) rollbackAt = time;
}

export async function readSessions() {
  sessions = await json("maintenance");
}

/** What is wrong, the worst first: a few words, the address that tells more, and what stands before those of its kind. */
function complaints() {
  const alarms = openAlarms() ?? { rows: [] };
  const wrong = wrongValues();
  const services = wrongServices();
  const links = wrongLinks();
  const lines = [];
  if (alarms.rows.length > 0) lines.push([counted(alarms.rows.length, "alarm") + (alarms.more ? " or more" : ""), address("overview")]);
  if (agent?.Unconfirmed) lines.push(["1 commit waits", address("overview")]);
  const found = [["values", "value", wrong], ["services", "service", services], ["interfaces", "interface", links]];
  for (const [view, noun, some] of found) {
    if (some.length > 0) lines.push([counted(some.length, noun), address(view, { wrong: true }), "not right: "]);
  }
  return lines;
}

/** Draws the line that every view begins with. */
export function drawVerdict() {
  const lines = complaints();
  const worst = openAlarms()?.rows[0]?.Severity.toLowerCase() ?? (lines.length > 0 ? "notice" : "none");
  byId("verdict").dataset.worst = openAlarms() === null ? "unknown" : worst;
  const isFirst = (at) => lines[at][2] !== undefined && lines[at - 1]?.[2] === undefined;
  const before = (at) => (isFirst(at) ? `${at > 0 ? "; " : ""}${lines[at][2]}` : at > 0 ? ", " : "");
  const parts = lines.flatMap(([text, to], at) => [before(at), link(to, text)]);
  redraw(byId("verdict"), [lines, openAlarms() === null], () => [...(openAlarms() === null ? ["reading"] : lines.length > 0 ? parts : ["Nothing is wrong"])]);
  if (agent) {
    byId("box").textContent = agent.Name ?? "";
    document.title = `${lines.length > 0 ? "! " : ""}${agent.Name ?? "box"} – Holdfast`;
  }
}

export function drawOverview(place) {
  if (!agent) return;
  drawFacts();
  drawUnconfirmed();
  drawSessions();
  drawWrong(place);
  drawLastChanges(place, FEW);
  const count = drawInterfaces({ ...place, search: "" }, "first-interfaces", FEW);
  const more = () => [link(address("interfaces", { wrong: place.onlyWrong }), count > FEW ? `All ${count} interfaces` : "All about interfaces")];
  redraw(byId("all-interfaces"), [count, place.onlyWrong], more);
}

function drawFacts() {
  const oldest = [...(openAlarms()?.rows ?? [])].map((it) => it.Since).sort()[0];
  const change = lastChange();
  const facts = [
    ["Box", agent.Name ?? "without a name"],
    ["Version", agent.Software && agent.Software !== agent.Version ? `${agent.Version}, image ${agent.Software}` : agent.Version],
    ["Agent runs since", [when(agent.Started), " · ", ago(agent.Started)]],
    ["Box runs since", agent.Booted ? [when(agent.Booted), " · ", ago(agent.Booted)] : "–"],
    ["Wrong since", oldest ? [when(oldest), " · ", ago(oldest)] : "–"],
    ["Last change", change ? [link(address("transactions", { open: change.SeqNum }), `#${change.SeqNum} ${change.Client}: ${change.Description}`), " ", ago(change.Start)] : "none is known"],
  ];
  const shown = [agent.Name, agent.Version, agent.Software, agent.Started, agent.Booted, oldest, change?.SeqNum];
  redraw(byId("facts"), shown, () => facts.map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, ...[text].flat()))));
}

function drawUnconfirmed() {
  const waiting = agent.Unconfirmed;
  byId("unconfirmed").hidden = waiting === null;
  if (waiting === null) return;
  const texts = () => ["The commit ", make("b", {}, long(waiting.Id)), " waits to be confirmed. It is rolled back in ", left(rollbackAt), ", at ", when(rollbackAt), "."];
  redraw(byId("unconfirmed"), [waiting.Id, rollbackAt], texts);
}

function drawSessions() {
  byId("maintenance").hidden = sessions.length === 0;
  redraw(byId("sessions"), sessions, () => sessions.map(session));
}

function session(it) {
  const silent = it.Consumers.filter((one) => one.Answer === null).map((one) => one.Id);
  const objects = it.Consumers.flatMap((one) => one.Objects);
  const notes = [`${it.Kind}, by ${it.CreatedBy}`, it.Overdue ? "its planned end has passed" : "", it.Reason, objects.length > 0 && counted(objects.length, "object is affected", "objects are affected"), silent.length > 0 && `no answer of ${silent.join(", ")}`];
  const names = objects.slice(0, OBJECTS).map((path) => make("li", {}, long(path)));
  const list = make("details", {}, make("summary", {}, "Affected objects"), make("ul", { class: "plain" }, ...names, objects.length > OBJECTS ? make("li", { class: "quiet" }, `${objects.length - OBJECTS} more`) : null));
  const end = it.EndsAt ? [", ends ", when(it.EndsAt)] : [];
  return make(
    "li",
    { "data-session": it.Id },
    make("div", { class: "line" }, badge(it.Status), make("span", {}, ...it.Resources.flatMap((one) => [long(one), " "])), make("span", { class: "quiet" }, new Date(it.StartsAt) > Date.now() ? "begins " : "began ", when(it.StartsAt), ...end)),
    make("p", { class: "impact" }, long(it.Id), ` · ${notes.filter(Boolean).join(" · ")}`),
    objects.length > 0 ? list : null,
  );
}

function drawWrong(place) {
  const values = wrongValues();
  const services = wrongServices();
  const rows = [
    ...services.map((it) => ({ state: it.status, label: it.tag, why: it.why, to: address("services", { search: it.tag }) })),
    ...values.map((it) => ({ state: it.state, label: it.label, why: it.why, to: place.with({ value: it.key }), key: it.key })),
  ];
  const shown = rows.slice(0, FEW);
  const line = (it) =>
    make("tr", { "data-wrong": it.key ?? it.label }, cell("State", badge(it.state)), cell("What", link(it.to, long(it.label))), cell("Why", it.why));
  redraw(byId("wrong"), [shown, location.hash], () => shown.map(line));
  const all = rows.length > FEW ? [link(address("values", { wrong: true }), `All ${values.length} values`), ", ", link(address("services", { wrong: true }), counted(services.length, "service"))] : [];
  const none = serviceCount() > 0 ? "All values and services are as they should be." : "All values are as they should be.";
  redraw(byId("wrong-more"), [rows.length, values.length, services.length, none], () => (rows.length === 0 ? [none] : all));
  byId("wrong-table").hidden = rows.length === 0;
}
