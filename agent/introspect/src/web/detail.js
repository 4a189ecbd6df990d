// The chosen value: why it is as it is, and what became of it. On a narrow screen it lies above the view, where the reader is.

import { argument, json } from "./api.js";
import { badge, byId, link, long, make, when } from "./dom.js";
import { address } from "./route.js";

/** Parts of a value that are named of one change. */
const CHANGES = 12;

let chosen = null;

/** Shows a value, or none. */
export async function choose(place) {
  const isOther = chosen !== place.value;
  chosen = place.value;
  byId("detail").hidden = chosen === "";
  document.body.classList.toggle("with-detail", chosen !== "");
  if (isOther && chosen !== "") byId("detail-body").replaceChildren(make("p", { class: "quiet" }, "reading ", long(chosen)));
  await drawChosen(place);
  if (isOther && chosen !== "") byId("detail").focus({ preventScroll: true });
}

export async function drawChosen(place) {
  if (!chosen) return;
  const key = chosen;
  const revisions = await json(`key-timeline?key=${argument(key)}`).catch(() => []);
  const why = await json(`why?key=${argument(key)}`).catch(() => null);
  if (key !== chosen) return;
  const label = why?.Label ?? revisions.at(-1)?.Label ?? key;
  const raw = byId("detail-body").querySelector("#timeline")?.dataset.raw === "yes";
  const changes = revisions.map((it, at) => ({ it, before: revisions[at - 1] })).reverse();
  byId("detail-body").replaceChildren(
    make("h2", { id: "detail-label" }, long(label)),
    make("p", { class: "quiet" }, long(key)),
    ...(why ? reasons(why, place) : [make("p", {}, revisions.length > 0 ? "It is gone." : "There is no such value.")]),
    make("h3", {}, "Timeline"),
    make("ol", { class: "plain", id: "timeline", "data-raw": raw ? "yes" : "no" }, ...changes.map(revision)),
    make("button", { type: "button", id: "raw", onclick: toggleRaw, "aria-pressed": raw }, "Values as JSON"),
  );
}

function toggleRaw({ target }) {
  const timeline = byId("timeline");
  timeline.dataset.raw = timeline.dataset.raw === "yes" ? "no" : "yes";
  target.setAttribute("aria-pressed", timeline.dataset.raw === "yes");
}

function reasons(why, place) {
  const value = (it) => link(place.with({ value: it.Key }), long(it.Label));
  const parts = [make("p", {}, badge(why.State), ` ${why.Because}`)];
  parts.push(make("p", {}, link(address("graph", { around: why.Key, value: why.Key }), "Show its neighbourhood")));
  const chain = why.Chain.filter((it) => it.WaitsFor);
  if (chain.length > 0) {
    const line = (it) => make("li", {}, value(it), ` waits for ${it.WaitsFor}`);
    parts.push(make("h3", {}, "Why it waits"), make("ol", { class: "plain" }, ...chain.map(line)));
  }
  if (why.AskedBy) {
    const { Client, Txn, Time, Trace } = why.AskedBy;
    parts.push(make("h3", {}, "Asked for"));
    parts.push(make("p", {}, `by ${Client}, ${Txn}, `, when(Time), ", trace ", long(Trace)));
  }
  if (why.Leaves.length > 0) {
    const leaf = (it) => [
      make("dt", { title: it.OpenConfig.join("\n") }, it.Path.split("/").at(-1)),
      make("dd", { title: it.Path }, `${it.Value} `, make("span", { class: "quiet" }, `${it.Kind} `, ...owners(it.Owners))),
    ];
    parts.push(make("h3", {}, "Configuration"), make("dl", {}, ...why.Leaves.flatMap(leaf)));
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
    if (!tag) return name;
    const to = link(address("services", { search: tag }), long(name));
    to.dataset.service = tag;
    return to;
  };
  return names.flatMap((name, at) => (at === 0 ? [one(name)] : [", ", one(name)]));
}

function revision({ it, before }) {
  const until = it.Until ? when(it.Until) : "now";
  const data = it.Value?.Data;
  return make(
    "li",
    {},
    badge(it.Flags["value-state"]),
    " ",
    when(it.Since),
    " – ",
    until,
    " ",
    make("span", { class: "quiet" }, it.Flags["last-update"] ?? ""),
    make("ul", { class: "plain changes" }, ...changes(before?.Value?.Data, data).map((text) => make("li", {}, text))),
    data ? make("pre", { class: "raw" }, JSON.stringify(data, null, 1)) : null,
  );
}

/** What became of a value's parts since it was there last. */
function changes(before, now) {
  if (!before || !now) return [];
  const [old, fresh] = [flat(before), flat(now)];
  const names = [...new Set([...old.keys(), ...fresh.keys()])].filter((name) => old.get(name) !== fresh.get(name));
  const some = names.slice(0, CHANGES).map((name) => `${name}: ${old.get(name) ?? "nothing"} → ${fresh.get(name) ?? "nothing"}`);
  return names.length > CHANGES ? [...some, `${names.length - CHANGES} more`] : some;
}

/** Parts of a document that hold something, by their names. */
function flat(document, prefix = "", into = new Map()) {
  if (document === null || document === undefined) return into;
  if (typeof document !== "object") return into.set(prefix, String(document));
  for (const [name, part] of Object.entries(document)) flat(part, prefix ? `${prefix}.${name}` : name, into);
  return into;
}
