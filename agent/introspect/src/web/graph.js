// The graph of values and what they depend on, as the agent draws it.

import { argument, read } from "./api.js";
import { byId, link, redraw } from "./dom.js";

export async function drawGraph(place) {
  const { around, depth } = place;
  const about = around ? `key=${argument(around)}&depth=${argument(depth)}` : "";
  const text = await (await read(`graph?${about}`)).text();
  const drawing = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  byId("graph").dataset.only = place.onlyWrong ? "wrong" : "all";
  byId("graph").replaceChildren(document.adoptNode(drawing));
  for (const it of byId("graph").querySelectorAll("a[data-key]")) {
    it.setAttribute("href", place.with({ value: it.dataset.key }));
  }
}

/** Puts the arguments of the address into the form, where nobody is typing. */
export function fillGraphForm(place) {
  if (!byId("graph-form").contains(document.activeElement)) {
    byId("graph-key").value = place.around;
    byId("graph-depth").value = place.depth;
  }
  redraw(byId("graph-all"), place.around, () => (place.around ? [link(place.with({ around: "", depth: "" }), "Show everything")] : []));
}
