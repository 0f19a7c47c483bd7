"""Whatever bytes arrive: a coded answer, or none where there was no request; and what was refused changed nothing."""

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fakes.real_api import RealApi, open_real_api
from tests.fuzz.refusals import check_answers, form_groups, kind_of, may_change
from tests.fuzz.torn_requests import bases, torn_requests
from tests.sizes import by_size


@pytest.fixture
def api() -> Iterator[RealApi]:
    with open_real_api() as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_torn_request_is_refused_in_code_and_changes_nothing(api: RealApi) -> None:
    kinds: Counter[str] = Counter()

    @settings(max_examples=by_size(1, 500, 2_000), suppress_health_check=[HealthCheck.too_slow])
    @given(sent=torn_requests(bases(form_groups(api))))
    def send(sent: bytes) -> None:
        before = api.stored()
        answers = api.send(sent)
        check_answers(sent, answers)
        if not may_change(answers):
            assert api.stored() == before, "what was refused is stored"
        kinds.update(map(kind_of, answers))

    send()
    assert api.call("GET", "/healthz").status == 200
    # Not everything was refused at the first line: what was torn came as far as the rules.
    assert {"200", "INVALID_REQUEST", "ILLEGAL_GENERATION", "NON_EMPTY_GROUP"} <= kinds.keys(), kinds
