"""What the OpenAPI document promises, held against the real service: each operation, with what fits its schema and not.

Schemathesis makes the requests and has checks of its own; what of them does not fit here is switched off by name.
`test_openapi.py` runs this file, or `pytest tests/fuzz/openapi_operations.py`.
"""

import json
import re
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance

from rallypoint.coordinator.http.reference.openapi import openapi_document
from rallypoint.protocol.operations import OPERATIONS
from tests.coordinator.http.problem_checks import check_documented
from tests.fakes.api_server import Answer
from tests.fakes.real_api import RealApi, open_real_api
from tests.fuzz.refusals import check_answers, form_groups, may_change
from tests.fuzz.torn_requests import GROUP
from tests.sizes import by_size

EXAMPLES = by_size(1, 5, 40)
# A body over the limit is refused before anybody knows what else is wrong with it.
REFUSALS = ["400", "401", "403", "404", "405", "409", "413", "415"]
config = SchemathesisConfig.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": REFUSALS}}})
Case = schemathesis.Case[Any]
# An event stream does not end; its own tests read it.
schema = schemathesis.openapi.from_dict(openapi_document("0"), config=config).exclude(operation_id="events")

TOO_LONG = "Got more than 8190 bytes"
"""HTTP's own limit of a request line and of a header, which no schema can state; nothing else of it is read then."""
WORDS_OF_A_MODEL = r": (Input|String|List|Tuple|Set|Dictionary|Field|Extra inputs|Value|Keys?|Unable) "
"""How the models refuse; what they refuse, the schema made from them must refuse too. Rules have words of their own."""
NO_FRACTION = r": Input should be a valid integer( \(\d+ more wrong fields?\))?\.$"
"""To JSON Schema 1.0 is an integer, to the models it is none."""


@pytest.fixture(scope="module")
def api() -> Iterator[RealApi]:
    with open_real_api() as opened:
        opened.leader = form_groups(opened)
        yield opened


def test_the_document_is_the_one_that_the_service_shows(api: RealApi) -> None:
    assert api.call("GET", "/openapi.json").json == openapi_document("0")


@pytest.mark.slow
@schema.parametrize()
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
def test_each_operation_keeps_its_promise(case: Case, api: RealApi) -> None:
    fits = case.meta is not None and case.meta.generation.mode.is_positive
    if fits and crc32(repr(case.body).encode()) % 2:
        speak_of_the_group(case, api.leader)
    before = api.stored()
    # A preview of the most members that may be asked for takes its time.
    response = case.call(base_url=api.url, timeout=100)
    answer = Answer(response.status_code, {k.title(): v[0] for k, v in response.headers.items()}, response.content)
    if response.request.method != "HEAD":
        check_answers(b"", [answer])
        if not may_change([answer]):
            assert api.stored() == before, "what was refused is stored"
    if answer.status == 400 and TOO_LONG in answer.json["detail"]:
        return
    # Switched off, for it wants nothing refused that fits the schema: rules may, with bounds that settings give and
    # with what is there already. What the models refuse must not fit, though.
    case.validate_response(response, excluded_checks=[positive_data_acceptance])
    if fits and answer.status >= 400:
        check_refusal_of_what_fits(case, answer)


def speak_of_the_group(case: Case, leader: str) -> None:
    """Else nearly every request would be of a group, and a member, that nobody knows."""
    if "group_id" in case.path_parameters:
        case.path_parameters["group_id"] = GROUP
    if isinstance(case.body, dict):
        case.body.update({name: leader for name in ("member_id",) if name in case.body})
        case.body.update({name: 1 for name in ("generation_id",) if name in case.body})


def check_refusal_of_what_fits(case: Case, answer: Answer) -> None:
    problem = answer.json
    operation = next((x for x in OPERATIONS if x.name == case.operation.definition.raw["operationId"]), None)
    if operation is not None:
        check_documented(operation, problem)
    if re.search(WORDS_OF_A_MODEL, problem["detail"]):
        assert re.search(NO_FRACTION, problem["detail"]), json.dumps(problem)
