// A member of a group over a channel (docs/channels.md): joins, leads when it is told to, keeps alive, commits.
//
// What lives here is what every program needs, whatever it reads. It gives up all partitions before it joins again
// ("eager"). One loop, `run`, does everything in order; pushes, the end of a connection and `stop` only wake it.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { assignRange } from "./range.mjs";
import { Disconnected, Problem, Channel, get } from "./channel.mjs";
import { readAssignment, readSubscription, writeAssignment } from "./consumer_bytes.mjs";
import { Nodes, destination, lowersScheme } from "./nodes.mjs";

const PARK_MS = 20_000; // how long a join or a sync may be held back before it is asked again
const BACKOFF_MS = 100; // the pause before the second attempt to connect; it doubles, up to the next line
const BACKOFF_MAX_MS = 2_000;
const REDIRECTS_MAX = 3; // followed in a row, until a node answers; one more means that the nodes disagree
const SAME_AGAIN = ["COORDINATOR_LOAD_IN_PROGRESS", "THROTTLING_QUOTA_EXCEEDED", "UNSTABLE_OFFSET_COMMIT"];
const TO_THE_END = ["commit", "leave"]; // what is tried again while the member stops
const TO_THE_END_MAX = 6; // attempts of each, within some three seconds
const ASK_ANOTHER = ["COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"];

/**
 * Options: `coordinator` (the URL of any node, or of several with commas between), `groupId`, `topics`, and where wanted `clientId`,
 * `sessionTimeoutMs`, `rebalanceTimeoutMs`, `token`, and for https the files `ca`, `certificate` and `key`. The callbacks may be async; until one returns the member does nothing
 * else, no heartbeat either, so let it be much shorter than the session timeout:
 *
 * - `assigned(partitions, offsets)`: read these from now on. Both are by topic: [0, 2] and {0: 42}; a partition that
 *   nobody has committed has no offset.
 * - `revoked(partitions)`: stop reading them, and commit; others get them next.
 * - `lost(partitions)`: stop reading them; others may have them already, and a commit would be refused.
 */
export class GroupMember {
  memberId = "";
  generationId = -1;
  #options;
  #callbacks;
  #nodes;
  #url = ""; // the coordinator's
  #named = ""; // where the group has moved, as the coordinator said; empty once it is followed
  #redirects = 0; // how many were followed since a node has answered
  #channel = null;
  #owned = null; // topic → partitions; null without an assignment
  #endingGeneration = -1; // the newest that is known to be over
  #heartbeatIntervalMs = 3_000; // what the join's answer says
  #heartbeatAt = 0; // when the next one is due
  #askedUntil = 0; // once it was dropped, why so is not asked again before
  #joinId = null; // names a join until it is answered, so that sending it again is harmless
  #attempt = 0; // counts the joins, so that the service knows one that comes late
  #joined = null; // the answer to a join that has no sync yet
  #committing = Promise.resolve(); // the last commit
  #stopping = new AbortController();
  #woken = false;
  #waker = null;
  #expiry = undefined;

  constructor(options, callbacks) {
    this.#options = { clientId: "member", sessionTimeoutMs: 45_000, rebalanceTimeoutMs: 60_000, ...options };
    this.#callbacks = callbacks;
    this.#nodes = new Nodes(this.#options.coordinator);
  }

  /** Be a member until `stop`, then leave. Throws what cannot be helped by trying again. */
  async run() {
    let attempts = 0;
    let missed = false;
    let before = ""; // the coordinator that answered last
    const answered = () => {
      if (before && before !== this.#url) console.error(`coordinator moved from ${before} to ${this.#url}`);
      else if (missed) console.error(`coordinator ${this.#url} answers`);
      [attempts, missed, before] = [0, false, this.#url];
      this.#redirects = 0;
    };
    while (!this.#stopping.signal.aborted) {
      try {
        if (!this.#named && attempts++) await this.#pause(attempts, this.#stopping.signal);
        await this.#connect();
        await this.#follow(answered);
      } catch (error) {
        if (this.#stopping.signal.aborted) break;
        this.#channel?.close();
        if (!error.retriable) throw error;
        if (this.#named) continue; // the group has moved, and it is known where to
        if (!missed) console.error(`connecting again: ${error.message}`);
        missed = true;
        if (error instanceof Disconnected) this.#nodes.askLast(this.#url);
      }
    }
    await this.#leave();
  }

  /** Give everything up, leave, and let `run` return. */
  stop() {
    this.#stopping.abort();
    this.#channel?.abandon(new Disconnected("the member is stopping"));
    this.#wake();
  }

  /**
   * Store the next offsets to read, {topic: {partition: offset}}. When it returns, they are on disk. The generation is
   * that in which the program had the partitions: a commit that comes too late is refused, and cannot undo what the next
   * owner has done. Commits go one after another: an older one that is repeated must not come after a newer one.
   */
  commit(generationId, offsets) {
    const wanted = mapValues(offsets, (ofTopic) => mapValues(ofTopic, (offset) => ({ offset })));
    const committing = this.#committing.then(() => this.#commitNow(generationId, wanted));
    this.#committing = committing.catch(() => {}); // its caller hears of it
    return committing;
  }

  async #commitNow(generationId, offsets) {
    const answer = await this.#call("commit", { generation_id: generationId, member_id: this.memberId, offsets });
    for (const [topic, results] of Object.entries(answer.offsets)) {
      for (const [partition, result] of Object.entries(results)) {
        if (result.error_code) throw new Problem({ ...result, detail: `${topic}/${partition}`, retriable: false });
      }
    }
  }

  // --- the connection -------------------------------------------------------------------------------------------------

  /** Open a channel where the group has moved, or with the coordinator that a look-up finds. */
  async #connect() {
    const named = this.#named;
    [this.#channel, this.#named] = [null, ""];
    if (named) this.#redirects++;
    this.#url = named || (await this.#ask((node) => this.#lookUp(node)));
    this.#nodes.learn(this.#url);
    const hear = (push, channel) => this.#hear(push, channel);
    this.#channel = await Channel.open(this.#url, this.#options, hear, () => this.#wake());
  }

  /**
   * The node of this channel coordinates the group no longer. If it names the one that does, go there at once; else, or
   * where nodes send each other the member, the look-up before the next channel finds it.
   */
  #moveOn(channel, named) {
    if (channel !== this.#channel) return; // a late word of a node before
    if (this.#redirects < REDIRECTS_MAX) this.#named = destination(this.#url, named) ?? "";
    channel.abandon(new Disconnected(`${this.#url} has let go of the group`));
    channel.close();
    this.#wake();
  }

  /** The URL of the coordinator, as the node at `node` has it. */
  async #lookUp(node) {
    const path = `/v1/coordinator?group_id=${encodeURIComponent(this.#options.groupId)}`;
    const [found] = await get(node, path, "coordinators", this.#options);
    if (!found) throw new Disconnected(`${node} names no coordinator`);
    const { url, error_code, error_name } = found;
    if (error_code) throw new Problem({ error_name, detail: `${node} knows no coordinator`, retriable: true });
    if (lowersScheme(node, url)) throw new Error(`${node} names ${url}, without TLS`);
    const coordinator = destination(node, url);
    if (!coordinator) throw new Disconnected(`${node} names ${url}, which is no URL of a node`);
    return coordinator;
  }

  /** Ask one node after another until one has an answer. */
  async #ask(question) {
    let failure;
    for (const node of this.#nodes.order) {
      try {
        return await question(node);
      } catch (error) {
        failure = error;
        if (error instanceof Disconnected) this.#nodes.askLast(node);
        else if (!ASK_ANOTHER.includes(error.error_name)) throw error;
      }
    }
    throw failure;
  }

  /** The coordinator is about to stop. If another node has the group already there is nothing to wait for. */
  async #lookElsewhere() {
    const [leaving, channel] = [this.#url, this.#channel];
    this.#nodes.askLast(leaving);
    try {
      const named = await this.#ask((node) => this.#lookUp(node));
      if (named !== leaving) this.#moveOn(channel, named);
    } catch (error) {
      console.error(`the coordinator stops, and the next one is not known yet: ${error.message}`);
    }
  }

  /** The first attempt comes at once, those after it with a growing pause, that many members do not come together. */
  #pause(attempts, signal) {
    const most = Math.min(BACKOFF_MAX_MS, BACKOFF_MS * 2 ** (attempts - 2));
    return sleep(most * (0.5 + Math.random() / 2), undefined, { signal });
  }

  #hear(push, channel) {
    if (channel !== this.#channel) return; // it is being closed
    if (push.event === "rebalance") this.#endingGeneration = Math.max(this.#endingGeneration, push.generation_id);
    if (push.event === "unloaded") this.#moveOn(channel, push.url);
    if (push.event === "drain" && this.#nodes.order.some((node) => node !== this.#url)) this.#lookElsewhere();
    if (push.event === "dropped") {
      // If another process has the same member id, each heartbeat of one has the other dropped.
      if (performance.now() < this.#askedUntil) return;
      this.#askedUntil = performance.now() + this.#heartbeatIntervalMs;
    }
    this.#wake();
  }

  #wake() {
    this.#woken = true;
    this.#waker?.();
  }

  async #rest(ms) {
    if (!this.#woken) {
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, ms);
        this.#waker = () => resolve(clearTimeout(timer));
      });
    }
    this.#woken = false;
  }

  /** Call until there is an answer that says more than "wait". `onSending` is told when. */
  async #call(op, body, onSending = () => {}) {
    for (let attempts = 2; ; attempts++) {
      const channel = this.#channel;
      if (!channel) throw new Disconnected("there is no channel");
      try {
        onSending(performance.now());
        const { status, body: answer } = await channel.call(op, this.#options.groupId, body);
        if (status === 200) return answer;
        if (answer.member_id) body.member_id = this.memberId = answer.member_id;
      } catch (problem) {
        if (problem.error_name === "NOT_COORDINATOR") this.#moveOn(channel, problem.url);
        if (!SAME_AGAIN.includes(problem.error_name)) throw problem;
        await this.#pause(attempts);
        if (this.#stopping.signal.aborted && (attempts > TO_THE_END_MAX || !TO_THE_END.includes(op))) throw problem;
      }
    }
  }

  // --- membership -----------------------------------------------------------------------------------------------------

  /** Has an assignment, and knows of no rebalance. */
  get #settled() {
    return this.#owned !== null && this.#endingGeneration < this.generationId;
  }

  /** A member's life on one channel. Who had an assignment on the one before says at once that it lives. */
  async #follow(onAnswer) {
    while (!this.#stopping.signal.aborted) {
      if (this.#settled) await this.#beat();
      else await this.#rejoin();
      onAnswer();
      if (this.#settled) await this.#rest(this.#heartbeatAt - performance.now());
    }
  }

  async #beat() {
    const sentAt = performance.now();
    try {
      await this.#call("heartbeat", { generation_id: this.generationId, member_id: this.memberId });
      this.#live(sentAt);
    } catch (error) {
      await this.#learn(error);
    }
  }

  /** Give up what it has, join, and get the new part, unless the next rebalance begins before. */
  async #rejoin() {
    await this.#giveUp("revoked");
    try {
      this.#joined ??= await this.#join();
      const { partitions, sentAt } = await this.#sync(this.#joined);
      const { offsets } = await this.#call("fetch", { topics: this.#options.topics });
      if (this.#leftMs(sentAt) <= 0) return; // others may have them already: the next sync tells
      this.#joined = null;
      this.#owned = partitions;
      this.#live(sentAt);
      const starts = mapValues(partitions, (numbers, topic) => startsOf(numbers, offsets[topic] ?? {}));
      await this.#callbacks.assigned(partitions, starts);
    } catch (error) {
      await this.#learn(error);
    }
  }

  async #join() {
    if (!this.#joinId) {
      this.#joinId = randomUUID();
      this.#attempt++;
    }
    const { clientId, topics, sessionTimeoutMs, rebalanceTimeoutMs } = this.#options;
    const joined = await this.#call("join", {
      member_id: this.memberId,
      client_id: clientId,
      protocol_type: "consumer",
      protocols: [{ name: "range", metadata: { topics } }],
      session_timeout_ms: sessionTimeoutMs,
      rebalance_timeout_ms: rebalanceTimeoutMs,
      request_id: this.#joinId,
      attempt: this.#attempt,
      max_wait_ms: PARK_MS,
    });
    this.#joinId = null;
    this.generationId = joined.generation_id;
    // A channel that keeps the session needs no heartbeats. WebSockets here send no pings, so a few of them stand for those.
    this.#heartbeatIntervalMs = joined.channel_keeps_session ? sessionTimeoutMs / 3 : joined.heartbeat_interval_ms;
    return joined;
  }

  /**
   * This member's partitions by topic, and when it asked for them. The leader sends the assignment of all. The session
   * goes on from the answer, and how long that was on its way nobody knows: so it counts from the asking, and the service
   * may hold the answer back for a part of it.
   */
  async #sync({ generation_id, protocol_type, protocol_name, leader, members }) {
    const asked = {
      ...{ generation_id, protocol_type, protocol_name, member_id: this.memberId },
      assignments: leader === this.memberId ? await this.#assign(members) : [],
      max_wait_ms: Math.min(PARK_MS, Math.floor(this.#options.sessionTimeoutMs / 4)),
    };
    let sentAt;
    const { assignment } = await this.#call("sync", asked, (now) => (sentAt = now));
    try {
      return { partitions: readAssignment(assignment), sentAt };
    } catch (error) {
      throw new Error(`what the leader gave cannot be read: ${error.message}`);
    }
  }

  /** What the leader says. Who cannot be read gets nothing, and stops nobody. */
  async #assign(members) {
    const readable = members.map((member) => ({ ...member, topics: topicsOf(member) }));
    const shares = assignRange(readable, await this.#partitionCounts());
    return members.map(({ member_id, metadata }) => ({
      member_id,
      assignment: writeAssignment(metadata, shares[member_id]),
    }));
  }

  async #partitionCounts() {
    const topics = await this.#ask((node) => get(node, "/v1/topics", "topics", this.#options));
    return new Map(topics.map(({ topic, partitions }) => [topic, partitions]));
  }

  /** What a refusal says about the membership. Any other error is thrown again. */
  async #learn(error) {
    switch (error.error_name) {
      case "MEMBER_ID_REQUIRED":
        this.memberId = error.member_id;
        return;
      case "REBALANCE_IN_PROGRESS":
        this.#endingGeneration = this.generationId;
        this.#joined = this.#joinId = null;
        return;
      case "UNKNOWN_MEMBER_ID":
        this.memberId = "";
        this.#joinId = null;
      // falls through
      case "ILLEGAL_GENERATION":
        this.#joined = null;
        await this.#giveUp("lost");
        return;
      default:
        throw error;
    }
  }

  /**
   * The group has heard of the member after `sentAt`. Without such news for a session timeout, others take over. The clock
   * is one that nobody sets.
   */
  #live(sentAt) {
    clearTimeout(this.#expiry);
    this.#heartbeatAt = sentAt + this.#heartbeatIntervalMs; // at once where the answer was long on its way
    this.#expiry = setTimeout(() => this.#giveUp("lost"), this.#leftMs(sentAt));
  }

  #leftMs(sentAt) {
    return sentAt + this.#options.sessionTimeoutMs - performance.now();
  }

  /** Tell the program to let go; `how` is "revoked" or "lost". */
  async #giveUp(how) {
    clearTimeout(this.#expiry);
    const partitions = this.#owned;
    this.#owned = null;
    if (partitions) await this.#callbacks[how](partitions);
  }

  async #leave() {
    await this.#giveUp("revoked");
    try {
      const members = [{ member_id: this.memberId, reason: "stopped" }];
      if (this.memberId) await this.#call("leave", { members });
    } catch (error) {
      console.error(`the group will notice by itself: ${error.message}`);
    }
    this.#channel?.close();
  }
}

function topicsOf({ member_id, metadata }) {
  try {
    return readSubscription(metadata).topics;
  } catch (error) {
    console.error(`${member_id} gets nothing, for its metadata cannot be read: ${error.message}`);
    return [];
  }
}

const mapValues = (object, change) =>
  Object.fromEntries(Object.entries(object).map(([key, value]) => [key, change(value, key)]));

const startsOf = (numbers, committed) =>
  Object.fromEntries(numbers.filter((number) => committed[number]).map((number) => [number, committed[number].offset]));
