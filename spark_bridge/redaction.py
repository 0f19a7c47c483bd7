"""Makes Spark hide the secrets among a query's options in its plans, its UI and its event log.

Spark hides options by name: `password`, `secret` and `token`. Kafka's clients have secrets under other names, such as a
private key, so these are added to the session's setting.
"""

from typing import Protocol

REGEX = "spark.sql.redaction.options.regex"
"""Spark's setting for the names of options that it hides. It can be set while a session runs."""

KAFKA_SECRETS = r"(?i:^kafka[.].*(?:[.]pem|[.]key|passphrase|[.]config|[.]cmd|[.]extensions)$)"
"""A Java regular expression. It also matches some options that are no secrets, such as certificates.
It has no capturing group, because an expression with back-references may follow it."""


class Settings(Protocol):
    """The part of `SparkSession.conf` that is used here."""

    def get(self, key: str, /) -> str | None:
        """The value, or Spark's default."""

    def set(self, key: str, value: str, /) -> None:
        """Change it for this session."""


def hide_secrets(settings: Settings) -> None:
    """Make the session hide the secrets among Kafka's options, too. May be called again.

    The previous expression is appended last, without a group around it. So its back-references keep their numbers, and
    a comment or a flag at its top level ends with it.
    """
    before = settings.get(REGEX) or ""
    if KAFKA_SECRETS not in before:
        settings.set(REGEX, f"{KAFKA_SECRETS}|{before}" if before else KAFKA_SECRETS)
