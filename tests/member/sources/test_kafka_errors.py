"""The table of Kafka's errors: complete for this librdkafka, and Kafka's own for the codes of brokers."""

import subprocess
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka", reason="missing confluent-kafka: pip install 'rallypoint[kafka]'")

from confluent_kafka import KafkaError

from rallypoint.member.sources.kafka_errors import (
    MISSING_AT_BROKERS,
    MISSING_IN_CLIENT,
    RETRIABLE_AT_BROKERS,
    RETRIABLE_IN_CLIENT,
    is_retriable,
    may_be_missing,
)
from tests.real.kafka import require_jars

FINAL_IN_CLIENT = """
_APPLICATION _ASSIGNMENT_LOST _ASSIGN_PARTITIONS _AUTHENTICATION _AUTO_OFFSET_RESET _BAD_COMPRESSION _BAD_MSG _CONFLICT
_CRIT_SYS_RESOURCE _DESTROY _EXISTING_SUBSCRIPTION _FATAL _FENCED _FS _GAPLESS_GUARANTEE _INCONSISTENT _INVALID_ARG
_INVALID_DIFFERENT_RECORD _INVALID_TYPE _ISR_INSUFF _KEY_DESERIALIZATION _KEY_SERIALIZATION _LOG_TRUNCATION
_MAX_POLL_EXCEEDED _NOOP _NOT_CONFIGURED _NOT_IMPLEMENTED _NO_OFFSET _PARTITION_EOF _PURGE_INFLIGHT _PURGE_QUEUE
_READ_ONLY _REVOKE_PARTITIONS _SSL _STATE _UNDERFLOW _UNKNOWN_GROUP _UNKNOWN_PROTOCOL _UNSUPPORTED_FEATURE
_VALUE_DESERIALIZATION _VALUE_SERIALIZATION
"""
"""The rest of librdkafka's own: a new one has to be sorted."""

JAVA = """
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.errors.RetriableException;

public class RetriableErrors {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values()) {
            if (error.exception() instanceof RetriableException) System.out.println(error.code() + " " + error);
        }
    }
}
"""


def test_each_of_librdkafkas_own_errors_is_of_one_kind() -> None:
    own = {getattr(KafkaError, name): name for name in dir(KafkaError) if name[0] == "_" and name[1:2].isupper()}
    sorted_here = [*RETRIABLE_IN_CLIENT, *MISSING_IN_CLIENT, *(getattr(KafkaError, n) for n in FINAL_IN_CLIENT.split())]
    assert sorted(sorted_here) == sorted(own)
    assert all(is_retriable(KafkaError(code)) == (code in RETRIABLE_IN_CLIENT) for code in own)
    assert all(may_be_missing(KafkaError(code)) == (code in MISSING_IN_CLIENT) for code in own)


def test_what_librdkafka_calls_fatal_is_final() -> None:
    assert is_retriable(KafkaError(KafkaError._TRANSPORT))
    assert not is_retriable(KafkaError(KafkaError._TRANSPORT, "gone for good", True))


@pytest.mark.kafka
def test_the_brokers_errors_are_sorted_as_in_kafka(tmp_path: Path) -> None:
    home, jars = require_jars()
    program = tmp_path / "RetriableErrors.java"
    program.write_text(JAVA)
    done = subprocess.run(
        [home / "bin" / "java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = {int(code): name for code, name in (line.split() for line in done.stdout.splitlines())}
    assert found == {**RETRIABLE_AT_BROKERS, **MISSING_AT_BROKERS}
    assert not RETRIABLE_AT_BROKERS.keys() & MISSING_AT_BROKERS.keys()
