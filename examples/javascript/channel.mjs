// One connection to the service: calls with their answers, and what comes unasked (docs/channels.md). It knows nothing of
// groups, and never tries anything again.
import http from "node:http";
import https from "node:https";
import { json } from "node:stream/consumers";
import WebSocket from "ws";
import { authorization, tlsOptions } from "./credentials.mjs";

const CALL_TIMEOUT_MS = 10_000; // for an answer, besides what the service was asked to hold it back
const REACH_TIMEOUT_MS = 3_000; // for a handshake or a GET: a node that is later is as good as gone

/** The connection is gone, or never was: the call may have been heard or not. */
export class Disconnected extends Error {
  retriable = true;
}

/** The service refused a call. `error_name`, `retriable` and the other fields are those of docs/http.md#errors. */
export class Problem extends Error {
  constructor(body) {
    super(`${body.error_name}: ${body.detail ?? ""}`);
    Object.assign(this, body);
  }
}

/** One WebSocket: many calls at a time, each answered by its id; `onPush(push, channel)` gets what nobody asked for. */
export class Channel {
  #socket;
  #waiting = new Map(); // id → what waits for the answer
  #lastId = 0;

  static open(url, credentials, onPush, onClose) {
    const socket = new WebSocket(`${url.replace(/^http/, "ws")}/v1/channel`, {
      ...tlsOptions(credentials),
      headers: authorization(credentials.token),
      handshakeTimeout: REACH_TIMEOUT_MS,
      perMessageDeflate: false,
    });
    const channel = new Channel();
    channel.#socket = socket;
    socket.on("message", (text) => channel.#hear(text, onPush));
    return new Promise((resolve, reject) => {
      socket.on("open", () => resolve(channel));
      socket.on("error", (error) => reject(new Disconnected(error.message))); // "close" always follows
      socket.on("close", (code) => {
        channel.abandon(new Disconnected(`the channel was closed with ${code}`));
        onClose();
      });
    });
  }

  /** The answer's status, 200 or 202, and body. Throws Problem and Disconnected. */
  call(op, groupId, body) {
    if (this.#socket.readyState !== WebSocket.OPEN) throw new Disconnected("there is no channel");
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      // A call without an answer means a dead line, which nothing else would tell.
      const timer = setTimeout(() => this.#socket.terminate(), (body.max_wait_ms ?? 0) + CALL_TIMEOUT_MS);
      this.#waiting.set(id, { resolve, reject, timer });
      this.#socket.send(JSON.stringify({ id, op, group_id: groupId, body }));
    });
  }

  /** Wait for no answer any more; what comes of the calls is not known. */
  abandon(reason) {
    for (const { reject, timer } of this.#waiting.values()) {
      clearTimeout(timer);
      reject(reason);
    }
    this.#waiting.clear();
  }

  close() {
    this.#socket.close(1000);
  }

  #hear(text, onPush) {
    const message = parsed(text);
    if (isObject(message)) return this.#take(message, onPush);
    this.abandon(new Disconnected("the node does not speak as this service does"));
    this.#socket.terminate();
  }

  #take({ id, status, body, ...push }, onPush) {
    if (push.event) onPush(push, this);
    const waiting = this.#waiting.get(id);
    if (!waiting) return; // abandoned
    this.#waiting.delete(id);
    clearTimeout(waiting.timer);
    if ((status === 200 || status === 202) && isObject(body)) waiting.resolve({ status, body });
    else waiting.reject(refusal("the channel", status, body));
  }
}

/** The list of this name in the answer to a GET of the service. Throws Problem and Disconnected. */
export async function get(url, path, name, credentials) {
  const files = tlsOptions(credentials);
  let answer, body;
  try {
    // Not by `fetch`, which takes no authorities. A redirect is an answer like any other, and not followed.
    const signal = AbortSignal.timeout(REACH_TIMEOUT_MS);
    answer = await new Promise((resolve, reject) => {
      const { get } = url.startsWith("https:") ? https : http;
      get(url + path, { ...files, headers: authorization(credentials.token), agent: false, signal }, resolve).on("error", reject);
    });
    body = await json(answer);
  } catch (error) {
    throw new Disconnected(`${url}: ${error.cause?.message ?? error.message}`);
  }
  if (answer.statusCode === 200 && Array.isArray(body?.[name])) return body[name];
  throw refusal(url, answer.statusCode, body);
}

/** What the service does not say, but a proxy, counts as no answer: who said it may be gone at the next try. */
function refusal(by, status, body) {
  if (typeof body?.error_name === "string") return new Problem(body);
  return new Disconnected(`${by}: HTTP ${status} that is no answer of this service`);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null; // as what is no object
  }
}

const isObject = (value) => typeof value === "object" && value !== null;
