"""A door over the fake service, open for one test."""

from collections.abc import AsyncIterator

import pytest

from tests.fakes.door_server import DoorClient, open_door
from tests.fakes.fake_service import FakeService


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
async def door(service: FakeService) -> AsyncIterator[DoorClient]:
    async with open_door(service) as client:
        yield client
