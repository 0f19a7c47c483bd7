"""From the store to groups: decoding, damaged records, the format of the store, and how long a shard was not served."""
