// Requests to the agent: the paths below scheduler/.

export async function read(address) {
  const response = await fetch(`scheduler/${address}`, { headers: { accept: "application/json" } });
  if (!response.ok) {
    const body = await response.json().catch(() => ({}));
    throw new Error(body.Error ?? `the agent answered ${response.status}`);
  }
  return response;
}

export const json = async (address) => (await read(address)).json();
export const argument = (text) => encodeURIComponent(text);

/** Reads a list page by page, until `take` has had all entries or returns false. */
export async function pages(first, take) {
  let address = first;
  while (address) {
    const response = await read(address);
    if (!take(await response.json())) return;
    const next = /<\/scheduler\/([^>]*)>; rel="next"/.exec(response.headers.get("link") ?? "");
    address = next?.[1];
  }
}
