"""The etcd in memory answers as a real one does: the same calls by chance to both, and the answers field by field."""

import random
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from rallypoint.coordinator.storage.etcd.client import (
    Delete,
    EtcdClient,
    EtcdCompacted,
    EtcdError,
    Get,
    KeyRange,
    LeaseEquals,
    ModEquals,
    Put,
    Txn,
    TxnAnswer,
)
from rallypoint.coordinator.storage.etcd.grpc_client import GrpcEtcdClient
from tests.fakes.fake_etcd import FakeEtcd, FakeEtcdClient
from tests.real.etcd import RealEtcd, running_etcd

pytestmark = [pytest.mark.etcd]

CALLS = 400
KEYS = [b"h/%d" % number for number in range(6)]
ALL = KeyRange(b"h/", b"h0")


class Side:
    """A client, with its revisions counted from the start and its leases by their places."""

    def __init__(self, client: EtcdClient, base: int) -> None:
        self.client = client
        self.base = base
        self.leases: list[int] = []

    def lease(self, place: int) -> int:
        return self.leases[place] if place >= 0 else 0

    def revision(self, revision: int) -> int:
        return revision and revision - self.base

    def answer(self, answer: TxnAnswer) -> Any:
        pairs = [
            (
                found.more,
                [
                    (
                        pair.key,
                        pair.value,
                        self.revision(pair.create_revision),
                        self.revision(pair.mod_revision),
                        self.leases.index(pair.lease) if pair.lease else -1,
                    )
                    for pair in found.pairs
                ],
            )
            for found in answer.found
        ]
        return answer.succeeded, self.revision(answer.revision), pairs


async def call(side: Side, chance: random.Random) -> Any:
    """One call by chance; what came of it."""
    kind = chance.choices(["txn", "grant", "alive", "revoke"], [20, 2, 1, 1])[0]
    place = chance.randrange(-1, len(side.leases))
    try:
        if kind == "grant" or (kind != "txn" and place < 0):
            lease, ttl_s = await side.client.lease_grant(chance.choice([60, 100]), 5)
            side.leases.append(lease)
            return ttl_s
        if kind == "alive":
            return (await side.client.lease_keep_alive(side.lease(place), 5)).ttl_s
        if kind == "revoke":
            return await side.client.lease_revoke(side.lease(place), 5)
        return side.answer(await side.client.txn(any_txn(side, chance, place), 5))
    except EtcdError as error:
        return type(error), error.trouble


def any_txn(side: Side, chance: random.Random, place: int) -> Txn:
    def operations() -> list[Any]:
        made: list[Any] = []
        for _ in range(chance.randrange(4)):
            key = chance.choice(KEYS)
            if chance.random() < 0.7:
                lease = side.lease(place) if chance.random() < 0.5 else 0
                made.append(Put(key, b"%d" % chance.randrange(100), lease))
            else:
                made.append(Delete(key))
        return [*made, Get(ALL, chance.choice([0, 2, 6]))]

    compares: list[Any] = []
    if chance.random() < 0.3:
        compares.append(ModEquals(chance.choice(KEYS), 0))
    if chance.random() < 0.2:
        compares.append(LeaseEquals(chance.choice(KEYS), side.lease(place)))
    return Txn(compares, operations(), operations())


async def events(side: Side, start: int, until: int) -> list[Any]:
    seen: list[Any] = []
    async with aclosing(side.client.watch([ALL], side.base + start)) as watch:
        async for answer in watch:
            seen += [(event.key, event.value, side.revision(event.mod_revision)) for event in answer.events]
            if seen and seen[-1][2] >= until:
                return seen
    return seen


async def sides(etcd: RealEtcd) -> tuple[Side, Side, FakeEtcd]:
    fake = FakeEtcd()
    pair = []
    for client in (GrpcEtcdClient(etcd.addresses), FakeEtcdClient(fake)):
        answer = await client.txn(Txn((), (Put(b"base", b""),)), 5)
        pair.append(Side(client, answer.revision))
    return pair[0], pair[1], fake


@pytest.mark.parametrize("seed", range(3))
async def test_the_same_calls_have_the_same_answers(tmp_path: Path, seed: int) -> None:
    with running_etcd(tmp_path) as etcd:
        real, fake, server = await sides(etcd)
        chances = random.Random(seed), random.Random(seed)
        for number in range(CALLS):
            answers = [await call(side, chance) for side, chance in zip((real, fake), chances, strict=True)]
            assert answers[0] == answers[1], number
        end = await real.client.txn(Txn((), (Put(KEYS[0], b"end"),)), 5)
        await fake.client.txn(Txn((), (Put(KEYS[0], b"end"),)), 5)
        last = real.revision(end.revision)
        assert await events(real, 1, last) == await events(fake, 1, last)
        middle = last // 2
        etcd.compact(real.base + middle)
        server.compact(fake.base + middle)
        for side in (real, fake):
            with pytest.raises(EtcdCompacted):
                await events(side, 1, last)
            with pytest.raises(EtcdCompacted):
                await side.client.txn(Txn((), (Get(ALL, 0, side.base + 1),)), 5)
        assert await events(real, middle + 1, last) == await events(fake, middle + 1, last)
        await real.client.close()
