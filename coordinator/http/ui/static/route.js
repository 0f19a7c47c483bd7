// Where the page stands: in the part of the URL after `#`, which no server and no log ever sees.
//
// `#/groups/a%2Fb/partitions?status=STALL`: parts are encoded once, so any id fits, whatever is in it.
import { signal } from "./html.js";

const decode = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // somebody typed a lone `%`
  }
};

function parse() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { parts: path === "" ? [] : path.split("/").map(decode), query: Object.fromEntries(new URLSearchParams(query)) };
}

export const route = signal(parse());
addEventListener("hashchange", () => (route.value = parse()));

/** The `href` of a view. Of the query, what is empty is left out. */
export function hrefOf(parts, query = {}) {
  const pairs = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false);
  const tail = pairs.length ? `?${new URLSearchParams(pairs)}` : "";
  return `#/${parts.map(encodeURIComponent).join("/")}${tail}`;
}

export function go(parts, query = {}) {
  location.hash = hrefOf(parts, query);
}

/** Change the query of this view, without a step in the history. */
export function refine(change) {
  const { parts, query } = route.value;
  history.replaceState(null, "", hrefOf(parts, { ...query, ...change }));
  route.value = parse();
}
