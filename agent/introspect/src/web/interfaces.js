// Links of the box: their state, addresses and rates.

import { openAlarms } from "./alarms.js";
import { json } from "./api.js";
import { ago, badge, byId, cell, counted, link, long, make, redraw } from "./dom.js";
import { address } from "./route.js";
import { isLinkWrong } from "./words.js";

const KILO = 1000;
const UNITS = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
const NS_PER_S = 1e9;
const BITS = 8;

let links = [];
/** The answer before, with which rates are made. */
let before = null;

export async function readInterfaces() {
  const answer = await json("interfaces");
  const earlier = new Map((before?.Interfaces ?? []).map((it) => [it.Name, it.Counters]));
  const seconds = before ? (answer.TimeNs - before.TimeNs) / NS_PER_S : 0;
  const rate = (now, then) => (seconds > 0 && now >= then ? ((now - then) * BITS) / seconds : null);
  links = answer.Interfaces.map((it) => {
    const [now, then] = [it.Counters, earlier.get(it.Name)];
    const of = (name) => (now && then ? rate(now[name], then[name]) : null);
    return { ...it, In: of("in-octets"), Out: of("out-octets") };
  });
  before = answer;
}

/** Links that are not right. */
export const wrongLinks = () => links.filter(isLinkWrong);

/** Draws the table of a view. `most` rows, those that are not right first. */
export function drawInterfaces(place, body, most) {
  const words = place.search.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (it) => `${it.Name} ${it.Type} ${it.Description ?? ""} ${it.Addresses.map((one) => one.Prefix).join(" ")}`;
  const fits = (it) => words.every((word) => text(it).toLowerCase().includes(word));
  const found = links.filter((it) => fits(it) && (!place.onlyWrong || isLinkWrong(it)));
  const ordered = most ? [...found].sort((a, b) => isLinkWrong(b) - isLinkWrong(a)).slice(0, most) : found;
  redraw(byId(body), [ordered, location.hash], () => ordered.map((it) => interfaceRow(it, place)));
  return found.length;
}

export function drawInterfaceView(place) {
  byId("interface-count").textContent = counted(drawInterfaces(place, "interfaces"), "interface");
}

function interfaceRow(it, place) {
  const addresses = it.Addresses.map((one) => make("li", { class: one.IsThere ? null : "quiet" }, long(one.Prefix)));
  const errors = it.Counters ? it.Counters["in-errors"] + it.Counters["out-errors"] : null;
  const discards = it.Counters ? it.Counters["in-discards"] + it.Counters["out-discards"] : null;
  return make(
    "tr",
    { "data-interface": it.Name },
    cell("Interface", link(place.with({ value: `link/${it.Name}` }), long(it.Name)), " ", make("span", { class: "quiet" }, it.Description ?? (it.Type === "physical" ? "" : it.Type))),
    cell("State", badge(stateOf(it)), ...reason(it)),
    cell("Since", it.LastChange ? ago(it.LastChange) : "–"),
    cell("In", make("span", { class: "figure" }, rateText(it.In))),
    cell("Out", make("span", { class: "figure" }, rateText(it.Out))),
    cell("Errors", make("span", { class: "figure", title: `${errors ?? 0} errors, ${discards ?? 0} discards` }, errors === null ? "–" : `${errors + discards}`)),
    cell("Addresses", addresses.length > 0 ? make("ul", { class: "plain" }, ...addresses) : null),
  );
}

function stateOf(it) {
  if (it.AdminStatus === null) return "not there";
  return it.AdminStatus === "DOWN" ? "shut" : it.OperStatus;
}

/** Why a link is not what the kernel shows, or less than it seems. */
function reason(it) {
  const told = { PENALTY: "lost its carrier too often", FORCED: "somebody says so" }[it.ToldDownBy];
  const says = it.EffectiveStatus === "DOWN" && it.OperStatus !== "UP" ? null : it.EffectiveStatus;
  const alarm = openAlarms()?.rows.find((one) => one.Resource === `interface:${it.Name}`);
  const more = alarm ? link(address("overview", { alarm: alarm.Id }), "alarm") : null;
  return [says && badge(says), told, more].filter(Boolean).flatMap((part) => [" ", part]);
}

function rateText(rate) {
  if (rate === null) return "–";
  const power = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log(Math.max(rate, 1)) / Math.log(KILO))));
  const figure = rate / KILO ** power;
  return `${figure >= 100 || power === 0 ? Math.round(figure) : figure.toFixed(1)} ${UNITS[power]}`;
}
