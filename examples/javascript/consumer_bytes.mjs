// What members tell each other, in either form: JSON, as this member does, or {"base64": "…"} with the bytes that Kafka's
// consumers write. They are Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3: the
// version, then the fields, big-endian. Of a later version what begins as 3 does is read.

/** A member's metadata: {topics, user_data, owned_partitions, generation_id, rack_id}, or less. Throws if it is no subscription. */
export function readSubscription(metadata) {
  if (!speaksBytes(metadata)) {
    const topics = metadata?.topics;
    if (!Array.isArray(topics) || topics.some((topic) => typeof topic !== "string")) throw new Error("it names no topics");
    return metadata;
  }
  const fields = new Fields(metadata);
  const told = { topics: fields.array(() => fields.text()), user_data: fields.userData() };
  if (fields.version >= 1) told.owned_partitions = fields.partitions();
  if (fields.version >= 2) told.generation_id = fields.int32();
  if (fields.version >= 3) told.rack_id = fields.textOrNull();
  return told;
}

/** What the leader gave, by topic; null, or no bytes, is nothing. Throws if it is no assignment. */
export function readAssignment(assignment) {
  if (assignment === null || assignment.base64 === "") return {};
  if (speaksBytes(assignment)) return new Fields(assignment).partitions();
  const partitions = isObject(assignment) ? (assignment.partitions ?? {}) : null;
  if (!isObject(partitions) || !Object.values(partitions).every(Array.isArray)) throw new Error("it names no partitions");
  return partitions;
}

/** The assignment of the member with this metadata, in the form that it speaks. */
export function writeAssignment(metadata, partitions) {
  if (!speaksBytes(metadata)) return { partitions };
  const ofTopic = ([topic, numbers]) => Buffer.concat([text(topic), array(numbers.map(int32))]);
  const topics = array(Object.entries(partitions).map(ofTopic));
  // Version 0, which every client reads, and no user data.
  return { base64: Buffer.concat([int16(0), topics, int32(-1)]).toString("base64") };
}

class Fields {
  #bytes;
  #next = 0;

  constructor({ base64 }) {
    this.#bytes = Buffer.from(base64, "base64");
    this.version = this.#take(2).readInt16BE();
    if (this.version < 0) throw new Error(`version ${this.version}`);
  }

  int32() {
    return this.#take(4).readInt32BE();
  }

  text() {
    return this.#decode(this.#length16());
  }

  textOrNull() {
    const length = this.#length16();
    return length < 0 ? null : this.#decode(length);
  }

  userData() {
    const length = this.int32();
    return length < 0 ? null : { base64: this.#take(length).toString("base64") };
  }

  array(element) {
    const count = this.int32();
    if (count < 0) throw new Error(`${count} elements`);
    const elements = [];
    while (elements.length < count) elements.push(element()); // which throws where the bytes end
    return elements;
  }

  partitions() {
    const found = new Map(); // a topic may be named twice
    this.array(() => {
      const [topic, numbers] = [this.text(), this.array(() => this.int32())];
      found.set(topic, [...(found.get(topic) ?? []), ...numbers]);
    });
    return Object.fromEntries(found);
  }

  #length16() {
    return this.#take(2).readInt16BE();
  }

  #decode(length) {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.#take(length));
  }

  #take(count) {
    const left = this.#bytes.length - this.#next;
    if (count < 0 || count > left) throw new Error(`${count} bytes wanted, ${left} left`);
    this.#next += count;
    return this.#bytes.subarray(this.#next - count, this.#next);
  }
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const speaksBytes = (value) => isObject(value) && Object.keys(value).join() === "base64";

function int16(value) {
  const bytes = Buffer.alloc(2);
  bytes.writeInt16BE(value);
  return bytes;
}

function int32(value) {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}

const array = (elements) => Buffer.concat([int32(elements.length), ...elements]);
const text = (value) => Buffer.concat([int16(Buffer.byteLength(value)), Buffer.from(value)]);
