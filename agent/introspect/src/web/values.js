// Values of the engine by state, and the reason for each.

import { argument, json, pages } from "./api.js";
import { badge, byId, cell, link, long, make, redraw } from "./dom.js";
import { isValueWrong } from "./words.js";

/** Rows of the table; with more, the search narrows them down. */
const ROWS = 500;
/** Values read at the start, a page at a time. */
const VALUES_MOST = 20000;

const values = new Map();
let isCut = false;

function take({ value, part_of: wholes }) {
  const { key, label, descriptor, state, error, details = [] } = value;
  if (state === "NONEXISTENT") values.delete(key);
  else values.set(key, { key, label, descriptor, state, why: error ?? reason(state, details), isPart: wholes.length > 0 });
}

/** What a value waits for, or what it is there without. */
function reason(state, details) {
  const list = details.join("; ");
  const word = { CONFIGURED: "does without ", PENDING: "waits for " }[state] ?? "";
  return list ? word + list : "";
}

export async function readValues() {
  values.clear();
  isCut = false;
  await pages("status?limit=1000", (found) => {
    for (const one of found) take(one);
    isCut = values.size >= VALUES_MOST;
    return !isCut;
  });
}

/** Reads anew those that changed: an event tells the state, not the reason. */
export async function refresh(keys) {
  for (const key of keys) {
    try {
      take(await json(`status?key=${argument(key)}`));
    } catch {
      values.delete(key); // it is gone by now
    }
  }
}

/** Values that are not right. A part is not named beside its whole. */
export const wrongValues = () => [...values.values()].filter((it) => !it.isPart && isValueWrong(it)).sort(byKey);

const byKey = (a, b) => (a.key < b.key ? -1 : 1);

export function drawValues(place) {
  const words = place.search.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (it) => words.every((word) => `${it.key} ${it.label} ${it.why}`.toLowerCase().includes(word));
  const isWanted = (it) => place.states.length === 0 || place.states.includes(it.state);
  const all = [...values.values()].filter((it) => !place.onlyWrong || isValueWrong(it));
  const found = all.filter((it) => isWanted(it) && fits(it)).sort(byKey);
  drawStates(all, place);
  const few = found.length > ROWS ? `, the first ${ROWS} shown` : "";
  byId("count").textContent = `${found.length} values${few}${isCut ? `; only the first ${VALUES_MOST} of the box are looked at` : ""}`;
  const rows = found.slice(0, ROWS);
  redraw(byId("values"), [rows, location.hash], () => rows.map((it) => valueRow(it, place)));
}

function valueRow(it, place) {
  return make(
    "tr",
    { "data-key": it.key, "aria-selected": place.value === it.key ? "true" : null },
    cell("State", badge(it.state)),
    cell("Value", link(place.with({ value: it.key }), long(it.label))),
    cell("Kind", make("span", { class: "quiet" }, it.descriptor)),
    cell("Why", it.why),
  );
}

function drawStates(all, place) {
  const counts = new Map(place.states.map((state) => [state, 0]));
  for (const { state } of all) counts.set(state, (counts.get(state) ?? 0) + 1);
  const button = ([state, count]) => {
    const isOn = place.states.includes(state);
    const states = isOn ? place.states.filter((it) => it !== state) : [...place.states, state];
    const filter = link(place.with({ state: states.join(" ") }), badge(state), ` ${count}`);
    filter.dataset.filter = state;
    filter.setAttribute("aria-pressed", isOn);
    filter.setAttribute("role", "button");
    return filter;
  };
  const sorted = [...counts].sort();
  redraw(byId("states"), [sorted, location.hash], () => sorted.map(button));
}
