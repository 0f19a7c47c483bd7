"""An `EtcdStore` over real servers: from a URL to its connections and its lease's thread."""

from collections.abc import Callable
from pathlib import Path

from rallypoint.coordinator.storage.contract import AppendMetrics, BatchLimits, StorageUnavailable
from rallypoint.coordinator.storage.etcd.grpc_client import GrpcEtcdClient, Login, TlsFiles
from rallypoint.coordinator.storage.etcd.node import LeaseThread, boot_time_ms
from rallypoint.coordinator.storage.etcd.store import EtcdStore
from rallypoint.coordinator.storage.etcd.url import EtcdUrl


async def open_etcd(
    url: EtcdUrl,
    *,
    node_id: str,
    identity: bytes,
    limits: BatchLimits,
    on_append: Callable[[AppendMetrics], None] | None = None,
) -> EtcdStore:
    """Open the store. Raises StorageUnavailable, naming a file that cannot be read, and KeyspaceHeld."""
    tls = None
    if url.tls:
        tls = TlsFiles(*(None if path is None else _read(path) for path in (url.ca_file, url.cert_file, url.key_file)))
    login = None
    if url.user is not None and url.password_file is not None:
        password_file = url.password_file
        _read(password_file)
        login = Login(url.user, lambda: password_file.read_text("utf-8").rstrip("\r\n"))
    return await EtcdStore.open(
        GrpcEtcdClient(url.addresses, tls, login),
        LeaseThread(),
        prefix=url.prefix,
        node_id=node_id,
        identity=identity,
        lease_ttl_ms=url.lease_ttl_ms,
        clock_ms=boot_time_ms,
        limits=limits,
        on_append=on_append,
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageUnavailable(f"{path} cannot be read: {error.strerror or error}") from error
