"""From the records of a step to the store: batches, the chunks of a large change, and one writer for each keyspace."""
