// Small helpers that all views share: elements, times, badges, and names that may be long.

import { explanation } from "./words.js";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/** Milliseconds in which calls are gathered before something is drawn anew. */
const GATHER = 150;

export const byId = (id) => document.getElementById(id);

/** Makes an element: attributes, then children, which may be text. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A word for a state, with what it means. */
export const badge = (state) => make("span", { class: "state", "data-state": state, title: explanation(state) }, state);

/** A name that may be long. It is broken between its parts only, and is whole on hover. */
export function long(text) {
  const parts = String(text).split(/(?<=[/[\],:;@=])/);
  const broken = parts.flatMap((part, at) => (at === 0 ? [part] : [document.createElement("wbr"), part]));
  return make("span", { class: "long", title: text }, ...broken);
}

/** A cell of a table. Its heading stands beside it where the table is drawn as cards; one without content is left out there. */
export function cell(heading, ...children) {
  const isEmpty = children.every((child) => child === "" || child === null || child === undefined);
  return make("td", { "data-heading": heading, class: isEmpty ? "none" : null }, make("div", {}, ...children));
}

/** A link to an address of the page. */
export const link = (address, ...children) => make("a", { href: address }, ...children);

/** A time of day; with its date when that is another one. */
export function when(time) {
  const moment = new Date(time);
  const clock = moment.toLocaleTimeString(undefined, { hour12: false });
  const isToday = moment.toDateString() === new Date().toDateString();
  const isThisYear = moment.getFullYear() === new Date().getFullYear();
  const date = moment.toLocaleDateString(undefined, { month: "short", day: "numeric", year: isThisYear ? undefined : "numeric" });
  return make("time", { datetime: moment.toISOString(), title: moment.toISOString() }, isToday ? clock : `${date}, ${clock}`);
}

/** How long something takes or has taken, in its two largest units. */
export function duration(ms) {
  if (ms < MINUTE) return `${Math.max(0, Math.floor(ms / SECOND))} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min ${Math.floor((ms % MINUTE) / SECOND)} s`;
  if (ms < DAY) return `${Math.floor(ms / HOUR)} h ${Math.floor((ms % HOUR) / MINUTE)} min`;
  return `${Math.floor(ms / DAY)} d ${Math.floor((ms % DAY) / HOUR)} h`;
}

/** How long ago a time was. The text is kept up to date by [`tick`]. */
export function ago(time) {
  return make("span", { class: "ago", "data-since": new Date(time).getTime() }, `${duration(Date.now() - new Date(time))} ago`);
}

/** Time until something. The text is kept up to date by [`tick`]. */
export function left(until) {
  return make("span", { class: "left", "data-until": until }, duration(until - Date.now()));
}

/** Brings all texts that depend on the present time up to date. */
export function tick() {
  for (const it of document.querySelectorAll(".ago")) it.textContent = `${duration(Date.now() - it.dataset.since)} ago`;
  for (const it of document.querySelectorAll(".left")) it.textContent = duration(it.dataset.until - Date.now());
}

/** A count with its noun. */
export const counted = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

/** Runs something that may fail, and says so where people see it. */
export async function guarded(action) {
  try {
    await action();
    byId("error").hidden = true;
  } catch (error) {
    byId("error").textContent = error.message;
    byId("error").hidden = false;
  }
}

/** Calls a function once for many calls in a short time. */
export function gathered(action) {
  let timer = null;
  return () => {
    timer ??= setTimeout(() => {
      timer = null;
      guarded(async () => action());
    }, GATHER);
  };
}

/** Replaces the content of an element, unless what it shows is the same: nothing moves under the hand of the reader. */
export function redraw(element, shown, draw) {
  const text = JSON.stringify(shown);
  // What is being pressed stays until it is let go: else the click would be lost.
  if (element.shown === text || element.querySelector(":active")) return;
  const focused = element.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  element.shown = text;
  element.replaceChildren(...draw());
  if (focused) [...element.querySelectorAll("a")].find((it) => it.getAttribute("href") === focused)?.focus({ preventScroll: true });
}
