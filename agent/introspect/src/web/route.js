// Addresses of the page: `#/VIEW?name=value...`. Whatever a reader chooses is in the address, so that it can be linked,
// loaded again, and left by Back.

/** The view, and the arguments of the address. An unknown view is the first one. */
export function current(views) {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { view: views.includes(path) ? path : views[0], args: new URLSearchParams(query) };
}

/** The address of a view with these arguments. Empty ones are left out. */
export function address(view, args = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(args)) {
    if (value !== "" && value !== null && value !== undefined && value !== false) query.set(name, value === true ? "1" : value);
  }
  const text = query.toString();
  return `#/${view}${text ? `?${text}` : ""}`;
}

/** The address of where the reader is, with other arguments. */
export function changed(views, change) {
  const { view, args } = current(views);
  return address(view, { ...Object.fromEntries(args), ...change });
}
