"""Avro in Confluent's framing: clicks of a Kafka topic, decoded by the schemas of a registry, in a Spark query."""
