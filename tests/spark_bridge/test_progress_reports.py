"""The driver sees the progress of any query of a session: whatever its sources say, it knows its own and no more."""

import json

from hypothesis import given
from hypothesis import strategies as st

from rallypoint.spark_bridge.progress_reports import Report, reports_in

OURS = {"reader_id": "r1", "allow_stateful": False, "refused": "", "assigned": {}, "lag": 3}
OTHERS = ["None", None, "", "null", "17", '{"clicks":{"0":5}}', "nonsense", "NaN", '"text"', "[1]", "[" * 100_000]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["rallypoint", *OURS]), inner),
)


@given(st.lists(st.text() | st.none() | values.map(json.dumps) | values.map(lambda v: json.dumps({"rallypoint": v}))))
def test_any_text_is_a_report_or_none(offsets: list[str | None]) -> None:
    assert all(isinstance(report, Report) for report in reports_in(offsets))


def test_ours_are_found_among_all_others() -> None:
    ours = json.dumps({"rallypoint": OURS, "end_offsets": {}})
    assert reports_in([*OTHERS, ours, *OTHERS]) == [Report("r1", allow_stateful=False)]
