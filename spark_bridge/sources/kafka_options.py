"""Options of Kafka clients that the source `kafka` refuses, with the reason or the alternative. Without `kafka.`."""

from collections.abc import Mapping

REFUSED: Mapping[str, str] = {
    "group.id": "the group is the one of the option group; Kafka's own groups are not used",
    "group.instance.id": "use groupInstanceId",
    "enable.auto.commit": "the bridge commits, to the coordinator",
    "auto.offset.reset": "use startingOffsets and failOnDataLoss",
    "enable.partition.eof": "the bridge needs it",
    "key.deserializer": "keys come as bytes",
    "value.deserializer": "values come as bytes",
}
"""Options that would be harmful or without effect."""

JAVA: Mapping[str, str] = {
    "default.api.timeout.ms": "use kafkaRequestTimeoutMs",
    "exclude.internal.topics": "a pattern never means Kafka's own topics",
    "fetch.max.wait.ms": "use kafka.fetch.wait.max.ms",
    "interceptor.classes": "there are none",
    "max.poll.records": "use maxOffsetsPerTrigger for a batch, maxRecordsPerPartition for a task",
    "metric.reporters": "there are none",
    "receive.buffer.bytes": "use kafka.socket.receive.buffer.bytes",
    "request.timeout.ms": "use kafka.socket.timeout.ms",
    "sasl.client.callback.handler.class": "use kafka.sasl.oauthbearer.method=oidc",
    "sasl.jaas.config": "use kafka.sasl.username and kafka.sasl.password",
    "sasl.login.callback.handler.class": "use kafka.sasl.oauthbearer.method=oidc",
    "send.buffer.bytes": "use kafka.socket.send.buffer.bytes",
    "ssl.enabled.protocols": "OpenSSL chooses the version",
    "ssl.keystore.certificate.chain": "use kafka.ssl.certificate.pem",
    "ssl.keystore.key": "use kafka.ssl.key.pem",
    "ssl.keystore.type": "the file of kafka.ssl.keystore.location is PKCS #12",
    "ssl.protocol": "OpenSSL chooses the version",
    "ssl.truststore.certificates": "use kafka.ssl.ca.pem",
    "ssl.truststore.location": "use kafka.ssl.ca.location, a file of PEM",
    "ssl.truststore.password": "the file of kafka.ssl.ca.location has none",
    "ssl.truststore.type": "the file of kafka.ssl.ca.location is PEM",
}
"""Options of Kafka's Java clients that librdkafka does not know, or accepts and ignores."""
