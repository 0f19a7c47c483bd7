// A program with a member in it. Where it counts up, yours reads the next records of each partition and works on them.
//
//     node consume.mjs --coordinator http://127.0.0.1:8000 --group clicks --topics clicks
//
// Of a service with several nodes, give all URLs with commas between: --coordinator http://127.0.0.1:8001,http://127.0.0.1:8002.
// Prints one JSON line for each change of ownership, and leaves on SIGTERM and SIGINT. The token comes from
// RALLYPOINT_TOKEN, since others can see a command line.
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { GroupMember } from "./member.mjs";

const RECORD_MS = 100; // how long the pretended work on one record of each partition takes
const RECORDS_PER_COMMIT = 10;

const OPTIONS = {
  coordinator: { type: "string", default: "http://127.0.0.1:8000" },
  group: { type: "string" },
  topics: { type: "string" }, // with commas between
  "client-id": { type: "string", default: "javascript" },
  "session-timeout-ms": { type: "string", default: "45000" },
  ca: { type: "string" }, // for https: files, as of openssl
  cert: { type: "string" },
  key: { type: "string" },
};

function parsed() {
  let wrong = "--group and --topics are needed";
  try {
    const { values } = parseArgs({ options: OPTIONS });
    if (values.group && values.topics) return values;
  } catch (error) {
    wrong = error.message;
  }
  const flags = Object.keys(OPTIONS).map((name) => `--${name}`);
  console.error(`${wrong}; usage: node consume.mjs --group GROUP --topics TOPIC,TOPIC; all flags: ${flags.join(" ")}`);
  process.exit(2);
}

const options = parsed();

let generationId = -1; // the one in which it got what it has
let positions = {}; // topic → partition → the next offset to read
let done = false;

const member = new GroupMember(
  {
    coordinator: options.coordinator,
    groupId: options.group,
    topics: options.topics.split(","),
    clientId: options["client-id"],
    token: process.env.RALLYPOINT_TOKEN,
    ca: options.ca,
    certificate: options.cert,
    key: options.key,
    sessionTimeoutMs: Number(options["session-timeout-ms"]),
  },
  {
    assigned(partitions, offsets) {
      generationId = member.generationId;
      positions = {};
      for (const [topic, numbers] of Object.entries(partitions)) {
        positions[topic] = Object.fromEntries(numbers.map((number) => [number, offsets[topic][number] ?? 0]));
      }
      tell("assigned", { partitions, offsets: positions });
    },
    async revoked(partitions) {
      const reached = positions;
      positions = {};
      await commit(reached);
      tell("revoked", { partitions, offsets: reached });
    },
    lost(partitions) {
      positions = {};
      tell("lost", { partitions });
    },
  },
);

function tell(event, more = {}) {
  const { memberId: member_id, generationId: generation_id } = member;
  console.log(JSON.stringify({ event, member_id, generation_id, ...more }));
}

/** What cannot be committed now is read again by whoever owns it next: that is what "at least once" means. */
async function commit(reached) {
  if (Object.keys(reached).length === 0) return;
  try {
    await member.commit(generationId, reached);
  } catch (error) {
    if (!error.retriable) throw error;
    console.error(`not committed: ${error.message}`);
  }
}

async function work() {
  for (let records = 1; !done; records++) {
    await sleep(RECORD_MS);
    for (const ofTopic of Object.values(positions)) {
      for (const partition of Object.keys(ofTopic)) ofTopic[partition] += 1;
    }
    if (records % RECORDS_PER_COMMIT === 0) await commit(positions);
  }
}

for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => member.stop());
const working = work();
await Promise.race([member.run(), working]);
done = true;
tell("left");
