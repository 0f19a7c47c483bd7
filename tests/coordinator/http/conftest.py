"""A api over the fake service, open for one test."""

from collections.abc import AsyncIterator

import pytest

from tests.fakes.api_server import ApiClient, open_api
from tests.fakes.fake_service import FakeService


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
async def api(service: FakeService) -> AsyncIterator[ApiClient]:
    async with open_api(service) as client:
        yield client
