// Service instances: their components and states, what they wait for, and the objects that they made.

import { pages } from "./api.js";
import { badge, byId, cell, counted, link, long, make, redraw, when } from "./dom.js";
import { isServiceWrong } from "./words.js";

/** Instances in the table. */
const INSTANCES_MOST = 1000;

let services = [];

export async function readServices() {
  const found = [];
  await pages("services?limit=200", (some) => found.push(...some) < INSTANCES_MOST);
  services = found;
}

/** Instances that are not ready, with the first reason. */
export function wrongServices() {
  return services.filter(isServiceWrong).map((it) => ({ tag: it.Service, status: it.Status, why: firstReason(it) }));
}

export const serviceCount = () => services.length;

function firstReason(it) {
  if (it.Failure) return it.Failure;
  for (const component of it.Components) {
    for (const state of component.States) {
      if (state.Failure) return `${state.Name}: ${state.Failure}`;
      if (state.WaitsFor) return `${state.Name} waits for ${state.WaitsFor}`;
    }
  }
  return "";
}

export function drawServices(place) {
  const words = place.search.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (it) => words.every((word) => JSON.stringify(it).toLowerCase().includes(word));
  const found = services.filter((it) => fits(it) && (!place.onlyWrong || isServiceWrong(it)));
  byId("service-count").textContent = counted(found.length, "service instance");
  redraw(byId("services"), [found, location.hash], () => found.map((it) => instance(it, place)));
}

function instance(it, place) {
  const states = it.Components.flatMap((component) => component.States.map((state) => stateRow(it, component, state, place)));
  const headings = ["Component", "State", "Status", "Why", "Objects"].map((text) => make("th", { scope: "col" }, text));
  return make(
    "section",
    { "data-service": it.Service, class: "instance" },
    make("h3", {}, long(it.Service), " ", badge(it.Status), make("span", { class: "quiet" }, ` ${it.Version}`)),
    it.Failure ? make("p", { class: "failure" }, it.Failure) : null,
    make("table", { class: "cards" }, make("thead", {}, make("tr", {}, ...headings)), make("tbody", {}, ...states)),
  );
}

function stateRow(it, component, state, place) {
  const status = component.BackTracking && state.Status === "reached" ? "backs out" : state.Status;
  const action = state.Action && `action ${state.Action}${state.ActionFailure ? `: ${state.ActionFailure}` : ""}`;
  const why = [state.Failure, state.WaitsFor && `waits for ${state.WaitsFor}`, action].filter(Boolean).join("; ");
  const object = (one) => {
    const shared = one.Others.length ? make("span", { class: "quiet" }, " with ", ...one.Others.map(long)) : null;
    return make("li", {}, badge(one.State), " ", link(place.with({ value: one.Key }), long(one.Label)), shared);
  };
  return make(
    "tr",
    { "data-of": it.Service, "data-state-name": state.Name },
    cell("Component", long(component.Type === "self" ? "self" : `${component.Type} ${component.Name}`)),
    cell("State", long(state.Name)),
    cell("Status", badge(status), " ", make("span", { class: "quiet" }, when(state.Since))),
    cell("Why", why),
    cell("Objects", state.Objects.length > 0 ? make("ul", { class: "plain" }, ...state.Objects.map(object)) : null),
  );
}
