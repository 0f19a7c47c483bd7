"""Which options Spark hides: what a client of Kafka's takes for a secret, by its name or by Spark's own."""

import re

import pytest

from rallypoint.spark_bridge.redaction import KAFKA_SECRETS, REGEX, hide_secrets

SPARKS_OWN = "(?i)secret|password|token|access[.]?key"
"""The default of `spark.redaction.regex`, which counts beside the other setting."""


class Settings:
    """Those of a session."""

    def __init__(self, **values: str) -> None:
        self.values = {REGEX: "(?i)url", **values}

    def get(self, key: str) -> str | None:
        return self.values.get(key)

    def set(self, key: str, value: str) -> None:
        self.values[key] = value


def is_hidden(name: str) -> bool:
    """Java's expression in Python's words."""
    return re.search(KAFKA_SECRETS, name) is not None or re.search(SPARKS_OWN, name) is not None


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password", "ssl.key.password", "ssl.keystore.password", "ssl.key.pem", "SSL.Key.PEM",
        "sasl.oauthbearer.config", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.assertion.private.key.passphrase", "sasl.kerberos.kinit.cmd", "sasl.jaas.config",
        "ssl.keystore.key",
    ],
)  # fmt: skip
def test_a_secret_of_kafkas_clients_is_hidden(name: str) -> None:
    assert is_hidden(f"kafka.{name}")


@pytest.mark.parametrize("name", ["kafka.bootstrap.servers", "kafka.sasl.mechanism", "subscribe", "other.config"])
def test_others_are_shown(name: str) -> None:
    assert not is_hidden(name)


def test_what_the_session_hides_already_stays_hidden_and_nothing_is_added_twice() -> None:
    settings = Settings()
    hide_secrets(settings)
    hide_secrets(settings)
    assert settings.values[REGEX] == f"{KAFKA_SECRETS}|(?i)url"


def test_a_back_reference_of_the_session_counts_as_before() -> None:
    settings = Settings(**{REGEX: r"^(ab)\1$"})
    hide_secrets(settings)
    expression = re.compile(settings.values[REGEX])
    names = ("abab", "kafka.ssl.keystore.key", "ab", "abkafka.ssl.keystore.key")
    assert [expression.search(name) is not None for name in names] == [True, True, False, False]


def test_a_session_that_hides_nothing_of_its_own_hides_these() -> None:
    settings = Settings(**{REGEX: ""})
    hide_secrets(settings)
    assert settings.values[REGEX] == KAFKA_SECRETS
