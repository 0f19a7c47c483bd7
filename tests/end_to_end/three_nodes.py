"""Three nodes of a cluster on one real etcd, each a process of its own."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.end_to_end.service_process import ServiceProcess
from tests.real.etcd import running_etcd


@contextmanager
def three_nodes(folder: Path, *options: str, shards: int) -> Iterator[list[ServiceProcess]]:
    """They run, and may not have their shares yet. The lease of each lives for three seconds."""
    with ExitStack() as stack:
        etcd = stack.enter_context(running_etcd(folder))
        nodes = []
        for number in range(3):
            home = folder / f"node-{number}"
            home.mkdir()
            storage = f"{etcd.url}/test?lease_ttl_ms=3000"
            own = ("--storage", storage, "--node-id", f"n{number}", "--shards", str(shards), *options)
            node = ServiceProcess(home, own)
            stack.callback(_end, node)
            node.start()
            nodes.append(node)
        yield nodes


def _end(node: ServiceProcess) -> None:
    if node.process is not None:
        node.resume()
        node.kill()
