"""Three nodes of a cluster on one real etcd, each a process of its own; also with TLS everywhere, and a policy then."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from tests.end_to_end.service_process import ServiceProcess
from tests.fakes.certificates import Authority, PemFiles
from tests.real.etcd import MutualTls, running_etcd

POLICY = """\
nodes = ["cert:spiffe://example.org/node"]

[[allow]]
who = ["cert:spiffe://example.org/client"]
may = ["*"]
on = ["cluster", "group:*", "topic:*"]
"""
"""Nodes are nodes, and the client of `Certificates` may do everything."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """All of one authority: of the nodes, which etcd and the other nodes see as well, and of those who ask them.

    policy: the file that every node judges callers by.
    """

    authority: Authority
    nodes: PemFiles
    client: PemFiles
    policy: Path

    def options(self) -> tuple[str, ...]:
        """Of a node that lets in nobody without a certificate."""
        ca = str(self.authority.ca)
        return (
            *("--tls-certificate", str(self.nodes.certificate), "--tls-key", str(self.nodes.key)),
            *("--tls-client-ca", ca, "--tls-cluster-ca", ca, "--access", str(self.policy)),
        )

    def storage(self) -> Mapping[str, str]:
        """What the URL of etcd says of it."""
        own = self.nodes
        return {"ca_file": str(self.authority.ca), "cert_file": str(own.certificate), "key_file": str(own.key)}

    def variables(self) -> Mapping[str, str]:
        """Of the command of a client."""
        return {
            "RALLYPOINT_CA": str(self.authority.ca),
            "RALLYPOINT_CERTIFICATE": str(self.client.certificate),
            "RALLYPOINT_KEY": str(self.client.key),
        }


def make_certificates(folder: Path) -> Certificates:
    """New ones, in files."""
    authority = Authority(folder)
    nodes = authority.sign("node", "localhost", "127.0.0.1", "spiffe://example.org/node")
    policy = folder / "access.toml"
    policy.write_text(POLICY)
    return Certificates(authority, nodes, authority.sign("client", "spiffe://example.org/client"), policy)


@contextmanager
def three_nodes(
    folder: Path, *options: str, shards: int, certificates: Certificates | None = None
) -> Iterator[list[ServiceProcess]]:
    """They run, and may not have their shares yet. The lease of each lives for three seconds.

    `certificates`: nobody speaks to anybody without showing one, etcd included, and their policy holds.
    """
    parameters = {"lease_ttl_ms": "3000"}
    tls = client = None
    if certificates is not None:
        tls = MutualTls(certificates.authority, certificates.client)
        client = certificates.authority.client(certificates.client)
        parameters |= certificates.storage()
        options = (*certificates.options(), *options)
    with ExitStack() as stack:
        etcd = stack.enter_context(running_etcd(folder, tls=tls))
        nodes = []
        for number in range(3):
            home = folder / f"node-{number}"
            home.mkdir()
            storage = f"{etcd.url}/test?{urlencode(parameters)}"
            own = ("--storage", storage, "--node-id", f"n{number}", "--shards", str(shards), *options)
            node = ServiceProcess(home, own, client=client)
            stack.callback(_end, node)
            node.start()
            nodes.append(node)
        yield nodes


def _end(node: ServiceProcess) -> None:
    if node.process is not None:
        node.resume()
        node.kill()
