// Which nodes can be asked who coordinates a group, and where a node may send its members. It asks nobody itself.

const REMEMBERED_MAX = 8; // coordinators besides the given nodes, so that the group is found when all of those are gone

/** The nodes that the user gave, and those that have coordinated the group since. */
export class Nodes {
  #given;
  #order;

  /** `text`: URLs with commas between. */
  constructor(text) {
    this.#given = new Set(text.split(",").map((url) => withoutSlash(url.trim())));
    for (const url of this.#given) {
      if (!isNode(url)) throw new Error(`coordinator: "${url}" is not a URL like http://127.0.0.1:8000`);
    }
    this.#order = [...this.#given];
  }

  /** All of them, in the order in which they are asked. */
  get order() {
    return [...this.#order];
  }

  /** This node coordinates the group. If nobody gave it, it is remembered until enough others have. */
  learn(url) {
    if (this.#given.has(url)) return;
    this.#order = [url, ...this.#order.filter((node) => node !== url)];
    const tooMany = this.#order.filter((node) => !this.#given.has(node)).slice(REMEMBERED_MAX);
    this.#order = this.#order.filter((node) => !tooMany.includes(node));
  }

  /** This node may be gone. */
  askLast(url) {
    if (this.#order.includes(url)) this.#order = [...this.#order.filter((node) => node !== url), url];
  }
}

/**
 * Where a node sends its members, as a URL of `Nodes`. Null where they may not go: `named` is no URL of a node, or the
 * token would go over plain http though the one that names it was asked over https.
 */
export function destination(from, named) {
  const url = typeof named === "string" ? withoutSlash(named) : "";
  return isNode(url) && !lowersScheme(from, url) ? url : null;
}

/** A node that was asked over https names one without. */
export const lowersScheme = (from, named) => from.startsWith("https:") && /^http:/i.test(named);

const withoutSlash = (url) => url.replace(/\/+$/, "");

function isNode(url) {
  try {
    return /^https?:\/\/[^/?#@\s]+[^?#@\s]*$/.test(url) && new URL(url).port !== "0";
  } catch {
    return false; // of a port that is none, for example
  }
}
