"""What kafka-python's integration tests ask of `test.service`, a module that its source distribution lacks, where the
broker is somebody else's: nothing is started, and nothing is stopped.
"""


class ExternalService:
    """A broker that runs already."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def open(self) -> None:
        """It is open."""

    def close(self) -> None:
        """It stays open."""


class SpawnedService:
    """A broker that the tests would start; with an address of another they start none."""
