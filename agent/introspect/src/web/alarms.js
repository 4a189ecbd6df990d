// Alarms: root causes first, each with what it takes down; the alarms that follow from it are below it.

import { argument, json, read } from "./api.js";
import { ago, badge, byId, counted, link, long, make, redraw, when } from "./dom.js";
import { address } from "./route.js";

/** Alarms in each of the two lists; an operator who has more works from the worst down. */
const ALARMS = 500;
/** Objects that an alarm unfolds to. */
const OBJECTS = 100;

/** What is drawn; null until it has been read. */
let alarms = null;
/** How often alarms were asked for, and which of these answers is drawn: an older one may come later. */
const reads = { begun: 0, drawn: 0 };
/** What the unfolded alarms take down, by their ids. */
const impacts = new Map();
let unfolded = new Set();

/** One page of alarms: the worst ones, and whether there are more. */
async function some(more) {
  const response = await read(`alarms?limit=${ALARMS}${more}`);
  return { rows: await response.json(), more: response.headers.has("link") };
}

export async function readAlarms() {
  const number = ++reads.begun;
  const found = { open: await some(""), shelved: await some("&shelved=true") };
  if (number < reads.drawn) return;
  reads.drawn = number;
  alarms = found;
  drawAlarms();
  for (const id of unfolded) await readImpact(id);
}

/** The open alarms, the worst first, or null before they are known. */
export const openAlarms = () => alarms?.open ?? null;

/** Marks the alarms that a reader has unfolded, by the address. */
export async function unfold(ids) {
  const added = ids.filter((id) => !unfolded.has(id));
  unfolded = new Set(ids);
  if (alarms) drawAlarms();
  for (const id of added) await readImpact(id);
}

async function readImpact(id) {
  const found = await json(`impact?alarm=${argument(id)}&limit=${OBJECTS}`).catch(() => null);
  impacts.set(id, found);
  drawAlarms();
}

export function drawAlarms() {
  const { open, shelved } = alarms;
  byId("alarm-count").textContent = open.rows.length === 0 ? "no alarms" : `${total(open)}: ${severities(open.rows)}`;
  const shown = [open, [...unfolded], [...impacts]];
  redraw(byId("open"), shown, () => roots(open.rows).map((it) => item(it, open.rows)));
  byId("shelved").hidden = shelved.rows.length === 0;
  byId("shelved").querySelector("summary").textContent = `${total(shelved)} put aside`;
  redraw(byId("put-aside"), shelved, () => shelved.rows.map((it) => item(it, [])));
}

function total({ rows, more }) {
  return more ? `more than ${rows.length} alarms, the worst ${rows.length} shown` : counted(rows.length, "alarm");
}

function severities(rows) {
  const counts = new Map();
  for (const { Severity } of rows) counts.set(Severity, (counts.get(Severity) ?? 0) + 1);
  return [...counts].map(([severity, count]) => `${count} ${severity.toLowerCase()}`).join(", ");
}

/** Alarms whose cause is not among the others. Impacts that are looked for one after the other may make a circle for a
    moment; its first alarm is shown as a root then. */
function roots(rows) {
  const byName = new Map(rows.map((it) => [it.Id, it]));
  const rootOf = (it) => {
    const seen = new Set();
    let at = it;
    while (byName.has(at.Cause) && !seen.has(at.Id)) {
      seen.add(at.Id);
      at = byName.get(at.Cause);
    }
    return seen.has(at.Id) ? it : at;
  };
  return [...new Set(rows.map(rootOf))];
}

function item(it, rows) {
  const isOpen = unfolded.has(it.Id);
  const followers = rows.filter((other) => other.Cause === it.Id && other !== it);
  const more = followers.length > 0 ? counted(followers.length, "alarm follows", "alarms follow") : "";
  const notes = [impactText(it), more, it.Shelf && `put aside by the shelf ${it.Shelf}`, it.SuppressedBy && `put aside by maintenance ${it.SuppressedBy}`];
  const toggle = isOpen ? [...unfolded].filter((id) => id !== it.Id) : [...unfolded, it.Id];
  const fold = link(address("overview", { alarm: toggle.join(" ") }), it.Text);
  fold.setAttribute("aria-expanded", isOpen);
  fold.setAttribute("class", "fold");
  return make(
    "li",
    { "data-alarm": it.Id },
    make("div", { class: "line" }, badge(it.Severity.toLowerCase()), fold, make("span", { class: "quiet" }, when(it.Since), " · ", ago(it.Since))),
    make("p", { class: "impact" }, [...notes.filter(Boolean), operatorWord(it)].join(" · ")),
    isOpen ? unfoldedParts(it, followers) : null,
  );
}

function unfoldedParts(it, followers) {
  const found = impacts.get(it.Id);
  const times = it.Occurrences > 1 ? `${it.Occurrences} times, last at ` : "raised at ";
  const object = (one) =>
    make(
      "li",
      {},
      badge(one.Status),
      one.Key ? link(address("values", { value: one.Key }), long(one.Label ?? one.Path)) : long(one.Path),
      ...one.Services.map((tag) => make("span", { class: "quiet" }, " of ", link(address("services", { search: tag }), long(tag)))),
    );
  const services = [...new Set((found ?? []).flatMap((one) => one.Services))];
  const takenDown = found?.length > 0 ? [make("h4", {}, `Takes down${found.length === OBJECTS ? `, the first ${OBJECTS}` : ""}`), make("ul", { class: "plain" }, ...found.map(object))] : [make("p", { class: "quiet" }, found ? "Nothing else suffers from it." : "")];
  const touched = services.length > 0 ? [make("h4", {}, "Services"), make("ul", { class: "plain" }, ...services.map((tag) => make("li", {}, link(address("services", { search: tag }), long(tag)))))] : [];
  const below = followers.length > 0 ? [make("h4", {}, "Alarms that follow from it"), make("ul", { class: "plain" }, ...followers.map((one) => make("li", { "data-follows": one.Id }, badge(one.Severity.toLowerCase()), one.Text, " ", make("span", { class: "quiet" }, long(one.Id)))))] : [];
  return make(
    "div",
    { class: "unfolded" },
    make("p", { class: "quiet" }, long(it.Id), ", ", times, when(it.LastRaised ?? it.Since)),
    ...takenDown,
    ...touched,
    ...below,
  );
}

/** What suffers from an alarm. */
function impactText(it) {
  const { State, Down, Degraded } = it.Impact ?? {};
  if (!State || State === "pending" || Down + Degraded === 0) return "";
  return `${State === "truncated" ? "more than " : ""}${counted(Down, "object")} down, ${Degraded} degraded`;
}

function operatorWord(it) {
  const word = { ack: "acknowledged by", closed: "closed by" }[it.OperatorState];
  if (!word) return "not acknowledged";
  return `${word} ${it.Operator}${it.OperatorText ? `: ${it.OperatorText}` : ""}`;
}

/** Says that the alarms may be others by now, from the moment in which the agent is not heard any more. */
export function markAlarms(isLive) {
  const stale = byId("alarms-stale");
  if (!isLive && stale.hidden && alarms) {
    stale.replaceChildren("The agent does not answer. This is what was known at ", when(Date.now()), "; it may have changed.");
  }
  stale.hidden = isLive || !alarms;
}
