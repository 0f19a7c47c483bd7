/**
 * Kafka's range: each topic by itself is cut into runs of neighbours, the first members get one more. A member has a
 * `member_id`, its `topics`, and perhaps a `group_instance_id`: static members come first, by that id. `counts` is a Map
 * from topic to partitions; a topic that is not in it is given to nobody.
 */
export function assignRange(members, counts) {
  const order = ({ group_instance_id: instance, member_id }) => (instance == null ? `1${member_id}` : `0${instance}`);
  const sorted = [...members].sort((one, other) => (order(one) < order(other) ? -1 : 1));
  const assignments = Object.fromEntries(sorted.map(({ member_id }) => [member_id, {}]));
  for (const [topic, count] of counts) {
    const takers = sorted.filter(({ topics }) => topics.includes(topic));
    const each = Math.floor(count / takers.length);
    const more = count % takers.length;
    let next = 0;
    takers.forEach(({ member_id }, place) => {
      const numbers = Array.from({ length: each + (place < more ? 1 : 0) }, () => next++);
      if (numbers.length) assignments[member_id][topic] = numbers;
    });
  }
  return assignments;
}
