"""The engine while a real etcd has faults: members that stop or die, a lost quorum, a full quota, users."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rallypoint.coordinator.storage.contract import AppendFailed, Keyspace, StorageUnavailable, Write
from rallypoint.coordinator.storage.engines import open_store
from rallypoint.coordinator.storage.etcd.store import EtcdStore
from tests.real.etcd import RealEtcd, running_etcd

pytestmark = [pytest.mark.etcd, pytest.mark.slow]


async def opened(url: str, node_id: str = "a") -> EtcdStore:
    store = await open_store(url, node_id=node_id)
    assert isinstance(store, EtcdStore)
    return store


async def until(condition: Callable[[], bool], timeout_s: float) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("fault", ["stopped", "killed"])
async def test_the_loss_of_one_member_after_the_other_loses_no_append_and_no_lease(tmp_path: Path, fault: str) -> None:
    with running_etcd(tmp_path, 3) as etcd:
        store = await opened(etcd.url)
        keyspace = await store.acquire("s")
        number = 0
        for member in (etcd.members[0], etcd.members[await asyncio.to_thread(etcd.leader)]):
            if fault == "stopped":
                member.signal(signal.SIGSTOP)
            else:
                member.kill()
            for _ in range(20):
                async with asyncio.timeout(15):
                    await keyspace.append([Write(b"%d" % number, b"")])
                number += 1
            if fault == "stopped":
                member.signal(signal.SIGCONT)
            else:
                member.start()
            await asyncio.sleep(2)
        assert store.lease.lost_count == 0
        assert len([1 async for page in keyspace.scan(b"") for _ in page]) == number
        await store.close()


async def test_without_a_quorum_an_append_waits_and_is_stored_when_it_is_back(tmp_path: Path) -> None:
    with running_etcd(tmp_path, 3) as etcd:
        store = await opened(etcd.url)
        keyspace = await store.acquire("s")
        for member in etcd.members[:2]:
            member.signal(signal.SIGSTOP)
        appending = asyncio.create_task(keyspace.append([Write(b"k", b"v")]))
        await until(lambda: store.status.trouble is not None, 10)
        await until(lambda: not keyspace.is_current(), 10)
        assert not appending.done()
        for member in etcd.members[:2]:
            member.signal(signal.SIGCONT)
        async with asyncio.timeout(20):
            await asyncio.wait([appending])
        await until(lambda: store.status.trouble is None, 20)
        await store.close()


async def test_a_full_quota_is_named_and_gone_when_the_alarm_is(tmp_path: Path) -> None:
    with running_etcd(tmp_path, options=("--quota-backend-bytes", "4000000")) as etcd:
        store = await opened(etcd.url)
        keyspace = await store.acquire("s")
        with pytest.raises(AppendFailed, match="database space exceeded"):
            await fill(keyspace)
        with pytest.raises(AppendFailed, match="database space exceeded"):
            await keyspace.append([Write(b"k", b"refused")])
        assert store.status.trouble == "etcd's quota is used up"
        await free_space(etcd)
        await until(lambda: store.status.trouble is None, 10)
        await keyspace.append([Write(b"k", b"small")])
        await store.close()


async def fill(keyspace: Keyspace) -> None:
    for _ in range(200):
        await keyspace.append([Write(b"k", bytes(100_000))])


async def free_space(etcd: RealEtcd) -> None:
    status = await asyncio.to_thread(etcd.ask, "maintenance/status", {})
    await asyncio.to_thread(etcd.compact, int(status["header"]["revision"]))
    await asyncio.to_thread(etcd.ask, "maintenance/defragment", {})
    await asyncio.to_thread(etcd.disarm)


async def test_a_user_with_a_permission_of_the_prefix_is_enough_and_a_wrong_password_is_named(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    with running_etcd(tmp_path) as etcd:
        await asyncio.to_thread(etcd.require_users, "rally", "secret", "own/")
        with pytest.raises(StorageUnavailable, match="user"):
            await opened(f"{etcd.url}/own")
        url = f"?user=rally&password_file={password}"
        store = await opened(f"{etcd.url}/own{url}")
        keyspace = await store.acquire("s")
        await keyspace.append([Write(b"k", b"v")])
        with pytest.raises(StorageUnavailable, match="permission"):
            await opened(f"{etcd.url}/other{url}")
        await store.close()
        password.write_text("wrong")
        with pytest.raises(StorageUnavailable, match="etcd refuses the user or the password"):
            await opened(f"{etcd.url}/own{url}")


async def test_after_a_restart_of_an_etcd_with_users_one_log_in_is_for_all_keyspaces(tmp_path: Path) -> None:
    # etcd has forgotten the token. If each call logged in, that could keep it busy for longer than any of them waits.
    password = tmp_path / "password"
    password.write_text("secret\n")
    # Passwords are cheap to check here: a log-in that outlasts its call's time is asked again, and would count.
    with running_etcd(tmp_path, options=("--bcrypt-cost", "4")) as etcd:
        await asyncio.to_thread(etcd.require_users, "rally", "secret", "own/")
        store = await opened(f"{etcd.url}/own?user=rally&password_file={password}")
        keyspaces = [await store.acquire(f"s{number}") for number in range(50)]
        etcd.members[0].kill()
        etcd.members[0].start()
        await asyncio.sleep(0.5)
        async with asyncio.timeout(15):
            await asyncio.gather(*(keyspace.append([Write(b"k", b"v")]) for keyspace in keyspaces))
        assert store.lease.lost_count == 0
        # Appends have one, and the lease, which has an event loop of its own, has another.
        assert 1 <= await asyncio.to_thread(etcd.calls_begun, "Authenticate") <= 2
        await store.close()
