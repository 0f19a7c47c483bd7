// Reads, writes and follows as the member of examples/javascript does: a question as JSON in each line, an answer as JSON
// in each.
import { createInterface } from "node:readline";

const [, , folder] = process.argv;
const { readAssignment, readSubscription, writeAssignment } = await import(`${folder}/consumer_bytes.mjs`);
const { destination } = await import(`${folder}/nodes.mjs`);

const answers = {
  subscription({ value }) {
    const nothing = { user_data: null, owned_partitions: {}, generation_id: -1, rack_id: null };
    return { ...nothing, ...readSubscription(value) };
  },
  assignment: ({ value }) => readAssignment(value),
  write: ({ value, partitions }) => writeAssignment(value, partitions),
  destination: ({ from, named }) => destination(from, named),
};

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  let answer;
  try {
    answer = { said: answers[asked.what](asked) };
  } catch (error) {
    answer = { error: error.message };
  }
  console.log(JSON.stringify(answer));
}
