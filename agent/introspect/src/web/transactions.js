// Transactions: who changed what, when, and what that did to the system.

import { json } from "./api.js";
import { ago, badge, byId, cell, link, long, make, redraw, when } from "./dom.js";
import { address } from "./route.js";
import { isTransactionWrong } from "./words.js";

/** Transactions in the list. */
const TRANSACTIONS = 200;
const NS_PER_MS = 1e6;

const transactions = new Map();
/** Revisions of the configuration, by the trace of their transaction. */
const revisions = new Map();
/** Revisions that may have come with a transaction and just before it. */
const NEW_REVISIONS = 5;
/** Lines of a difference that the front view has room for. */
const FEW_LINES = 6;

export async function readTransactions() {
  const found = await json(`txn-history?last=${TRANSACTIONS}`);
  transactions.clear();
  for (const it of found) transactions.set(it.SeqNum, it);
  await readRevisions(TRANSACTIONS);
}

async function readRevisions(last) {
  for (const it of await json(`config-log?last=${last}`)) revisions.set(it.trace, it);
}

export async function takeTransaction(it) {
  transactions.set(it.SeqNum, it);
  if (it.Client !== null) await readRevisions(NEW_REVISIONS);
}

const newest = () => [...transactions.values()].sort((a, b) => b.SeqNum - a.SeqNum).slice(0, TRANSACTIONS);

/** The last transaction that somebody asked for. */
export const lastChange = () => newest().find((it) => it.Client !== null) ?? null;

export function drawTransactions(place) {
  const text = (it) => `${it.SeqNum} ${who(it)} ${it.Description} ${it.Trace ?? ""} ${it.Error ?? ""} ${[...it.Planned, ...it.Executed].map((one) => one.Label).join(" ")}`;
  const words = place.search.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (it) => words.every((word) => text(it).toLowerCase().includes(word));
  const found = newest().filter((it) => fits(it) && (!place.onlyWrong || isTransactionWrong(it)));
  redraw(byId("transactions"), [found.map((it) => it.SeqNum), location.hash], () => found.map((it) => transaction(it, place)));
  byId("no-transactions").hidden = found.length > 0;
}

/** Draws the last transactions for the front view. */
export function drawLastChanges(place, most) {
  const found = newest().filter((it) => !place.onlyWrong || isTransactionWrong(it)).slice(0, most);
  const line = (it) =>
    make(
      "li",
      { "data-seq": it.SeqNum },
      make("div", { class: "line" }, badge(result(it)), link(address("transactions", { open: it.SeqNum }), `#${it.SeqNum} ${who(it)}: ${it.Description || "repair"}`), make("span", { class: "quiet" }, when(it.Start), " · ", ago(it.Start))),
      difference(it, FEW_LINES),
      make("p", { class: "impact" }, it.Error ?? effects(it)),
    );
  redraw(byId("changes"), [found.map((it) => [it.SeqNum, revisions.has(it.Trace)]), place.onlyWrong], () => (found.length > 0 ? found.map(line) : [make("li", { class: "quiet" }, "none")]));
}

const who = (it) => it.Client ?? "the agent";
const result = (it) => (isTransactionWrong(it) ? "failed" : "done");

/** The lines of the configuration that a transaction changed, and the comment of its author; null where it changed none. */
function difference(it, most) {
  const revision = revisions.get(it.Trace);
  if (!revision) return null;
  const shown = revision.lines.slice(0, most);
  const left = revision.total_lines - shown.length;
  return make(
    "div",
    { class: "difference" },
    revision.comment ? make("p", {}, `“${revision.comment}”`) : null,
    ...shown.map((line) => make("code", { class: line.startsWith("+") ? "new" : "gone" }, long(line))),
    left > 0 ? make("p", { class: "quiet" }, `and ${left} lines more`) : null,
  );
}

/** What a transaction did to the system, by the kinds of its operations and their objects. */
function effects(it) {
  const shown = it.Executed.filter((one) => !one.IsDerived);
  const counts = new Map();
  for (const one of shown.length > 0 ? shown : it.Executed) {
    const name = one.Operation.toLowerCase();
    counts.set(name, [...(counts.get(name) ?? []), one.Label]);
  }
  const some = ([name, labels]) => `${name} ${labels.slice(0, 3).join(", ")}${labels.length > 3 ? ` and ${labels.length - 3} more` : ""}`;
  const left = it.Omitted > 0 ? [`${it.Omitted} operations more`] : [];
  return [...[...counts].map(some), ...left].join("; ") || "nothing to do in the system";
}

function transaction(it, place) {
  const isOpen = place.open === String(it.SeqNum);
  const took = ((it.StopNs - it.StartNs) / NS_PER_MS).toFixed(1);
  const executed = it.Executed.length + it.Omitted;
  const fold = link(place.with({ open: isOpen ? "" : it.SeqNum }), `#${it.SeqNum} ${who(it)}: ${it.Description || "repair"}`);
  fold.setAttribute("class", "fold");
  fold.setAttribute("aria-expanded", isOpen);
  return make(
    "li",
    { "data-seq": it.SeqNum },
    make("div", { class: "line" }, badge(result(it)), fold, make("span", { class: "quiet" }, when(it.Start), " · ", ago(it.Start))),
    make("p", { class: "impact" }, it.Error ?? effects(it)),
    isOpen ? unfolded(it, `${executed} of ${it.Planned.length + it.Omitted} operations, ${took} ms`, place) : null,
  );
}

function unfolded(it, figures, place) {
  const waits = it.Pending.length ? [", waits: ", ...it.Pending.flatMap((key) => [link(place.with({ value: key }), long(key)), " "])] : [];
  const lists = isAsPlanned(it) ? [operations("Operations", it.Executed, place)] : [operations("Planned", it.Planned, place), operations("Executed", it.Executed, place)];
  return make(
    "div",
    { class: "unfolded" },
    it.Error ? make("p", { class: "failure" }, `${it.Error}${it.Undone ? " (rolled back)" : ""}`) : null,
    difference(it, Infinity),
    make("p", { class: "quiet" }, figures, ", trace ", long(it.Trace ?? "none"), ...waits),
    ...lists,
  );
}

/** True when what was carried out is what was planned, in any order. */
function isAsPlanned(it) {
  const names = (list) => list.map((one) => `${one.Operation} ${one.Key}`).sort().join("\n");
  return names(it.Planned) === names(it.Executed);
}

function operations(title, list, place) {
  if (list.length === 0) return make("p", { class: "quiet" }, `${title}: none`);
  const line = (it) =>
    make(
      "tr",
      {},
      cell("Operation", it.Operation.toLowerCase()),
      cell("Value", link(place.with({ value: it.Key }), long(it.Label))),
      cell("Result", badge(it.Result)),
      cell("Why", it.Error ? `${it.Error}${it.Errno ? ` (errno ${it.Errno})` : ""}` : it.Cause),
    );
  const headings = ["Operation", "Value", "Result", "Why"].map((text) => make("th", { scope: "col" }, text));
  return make(
    "table",
    { class: "cards operations" },
    make("caption", { class: "quiet" }, title),
    make("thead", {}, make("tr", {}, ...headings)),
    make("tbody", {}, ...list.map(line)),
  );
}
