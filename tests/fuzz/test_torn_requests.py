"""Whatever bytes arrive: a coded answer, or none where there was no request; and what was refused changed nothing."""

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fakes.real_api import RealApi, open_real_api
from tests.fuzz.refusals import check_answers, form_groups, kind_of, may_change
from tests.fuzz.torn_requests import GROUP, bases, torn_requests, whole
from tests.sizes import by_size


@pytest.fixture
def api() -> Iterator[RealApi]:
    with open_real_api() as opened:
        yield opened


def test_what_is_torn_was_good_and_comes_as_far_as_the_rules(api: RealApi) -> None:
    member_id = form_groups(api)
    good = bases(member_id)
    kinds = Counter(kind_of(answer) for base in good for answer in api.send(whole(base)))
    assert "NON_EMPTY_GROUP" in kinds
    assert kinds["200"] > len(good) / 2, kinds
    for base in (*reversed(good), *good):
        api.send(whole(base))
    described = api.call("GET", f"/v1/groups/{GROUP}").json
    assert [member["member_id"] for member in described["members"]] == [member_id]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_torn_request_is_refused_in_code_and_changes_nothing(api: RealApi) -> None:
    @settings(max_examples=by_size(1, 200, 2_000), suppress_health_check=[HealthCheck.too_slow])
    @given(sent=torn_requests(bases(form_groups(api))))
    def send(sent: bytes) -> None:
        before = api.stored()
        answers = api.send(sent)
        check_answers(sent, answers)
        if not may_change(answers):
            assert api.stored() == before, "what was refused is stored"

    send()
    assert api.call("GET", "/healthz").status == 200
