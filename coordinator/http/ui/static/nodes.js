// The other nodes of the cluster, as this one last told them: where to look when it does not answer any more.
import { effect, signal } from "./html.js";
import { get, pathOf } from "./api.js";
import { connection, onEvent } from "./live.js";

const KINDS = new Set(["node_followed", "node_lost"]);

/** Those that run, without the one that serves this page. */
export const others = signal([]);

async function read() {
  try {
    const { node_id: mine, nodes } = await get(pathOf("cluster"));
    others.value = nodes.filter((node) => node.node_id !== mine && node.state !== "gone");
  } catch {
    // What is known stays: it is wanted just when this node answers no more.
  }
}

/** Keep them known; the page calls it once. */
export function keepNodes() {
  effect(() => {
    if (connection.value.state === "live") read();
  });
  onEvent((event) => KINDS.has(event.kind) && connection.value.state === "live" && read());
}
