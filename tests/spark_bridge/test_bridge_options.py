"""Options: what is taken, and that what is wrong is named in one sentence."""

import pickle

import pytest

from spark_bridge.errors import OptionError
from spark_bridge.options import EARLIEST, LATEST, OptionSpec, parse_options
from spark_bridge.sources.registry import find_source, parse_for_source

NEEDED = {"coordinator": "http://127.0.0.1:8000", "group": "clicks", "source": "files", "subscribe": "a"}
FILES = {**NEEDED, "path": "/data"}


def test_the_defaults() -> None:
    options = parse_options(NEEDED)
    assert options.coordinators == ("http://127.0.0.1:8000",)
    assert options.assignors == ("cooperative-sticky",)
    assert options.starting.of(("a", 0)) == LATEST
    assert options.max_offsets_per_trigger is None
    assert (options.session_timeout_ms, options.rebalance_timeout_ms) == (45_000, 300_000)
    assert options.source.fail_on_data_loss
    assert not options.allow_stateful


def test_names_are_compared_without_regard_to_case_as_spark_sends_them_in_lower_case() -> None:
    raw = {**NEEDED, "startingoffsets": "Earliest", "MAXOFFSETSPERTRIGGER": "7", "includeHeaders": "TRUE"}
    options = parse_options(raw)
    assert options.starting.of(("a", 3)) == EARLIEST
    assert options.max_offsets_per_trigger == 7
    assert options.source.include_headers


def test_lists_lose_their_spaces_and_repeats() -> None:
    options = parse_options({**NEEDED, "subscribe": "b, a,b", "assignor": "roundrobin , range"})
    assert options.topics == ("b", "a")
    assert options.assignors == ("roundrobin", "range")


def test_starting_offsets_of_single_partitions() -> None:
    options = parse_options({**NEEDED, "startingOffsets": '{"a":{"0":23,"1":-2,"2":-1}}'})
    assert [options.starting.of(("a", p)) for p in range(4)] == [23, EARLIEST, LATEST, EARLIEST]


def test_a_timestamp_instead_of_offsets() -> None:
    assert parse_options({**NEEDED, "startingTimestamp": "1767225600000"}).starting.timestamp_ms == 1767225600000


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("coordinator", "localhost:8000", "is not a URL"),
        ("coordinator", " ", "is empty"),
        ("subscribe", "a,,b", "empty name"),
        ("maxOffsetsPerTrigger", "0", "whole number from 1"),
        ("maxOffsetsPerTrigger", "many", "whole number from 1"),
        ("sessionTimeoutMs", "9999999999", "whole number from 1"),
        ("includeHeaders", "yes", "neither true nor false"),
        ("startingOffsets", "newest", "is not earliest, latest, or the JSON"),
        ("startingOffsets", "[1]", "is not a JSON object"),
        ("startingOffsets", '{"a":{"x":1}}', "is not a partition of a"),
        ("startingOffsets", '{"a":{"0":-3}}', "is not an offset of a-0"),
        ("startingOffsets", '{"a":{"0":true}}', "is not an offset of a-0"),
        ("startingOffsets", '{"a":{"0":1,"0":2}}', "twice"),
        ("startingOffsets", '{"b":{"0":1}}', "not subscribed to"),
        ("startingTimestamp", "yesterday", "milliseconds since 1970"),
        ("startingOffsetsByTimestamp", "5", "is not a JSON object of topics"),
        ("startingOffsetsByTimestamp", '{"a":{"0":-1}}', "is not a time of a-0"),
        ("startingOffsetsByTimestamp", '{"b":{"0":1}}', "not subscribed to"),
        ("startingOffsetsByTimestampStrategy", "earliest", "neither error nor latest"),
        ("startingOffsetsByTimestampStrategy", "latest", "says nothing without startingTimestamp or"),
        ("maxTriggerDelay", "15m", "says nothing without minOffsetsPerTrigger"),
        ("minPartitions", "-1", "whole number from 1"),
        ("maxRecordsPerPartition", "1.5", "whole number from 1"),
        ("subscribePattern", "c.*", "stands beside subscribe"),
        ("subscribePattern", "(", "is no regular expression"),
        ("assignor", "cooperative", "no assignor is called 'cooperative'"),
        ("staticMembership", "yes", "neither true nor false"),
        ("assign", '{"a":[0]}', "cannot be used: the group assigns partitions"),
        ("groupIdPrefix", "x", "cannot be used: the group has the name"),
        ("endingOffsets", "latest", "cannot be used: a stream has no end"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str, says: str) -> None:
    with pytest.raises(OptionError, match=says) as caught:
        parse_options({**NEEDED, name: value})
    assert caught.value.option == name
    assert str(caught.value).startswith(f"option {name}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["coordinator", "group", "subscribe"])
def test_what_is_required_is_named(name: str) -> None:
    with pytest.raises(OptionError, match=f"^option {name}: is required$"):
        parse_options({key: value for key, value in NEEDED.items() if key != name})


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(OptionError, match=r"^option grup: is not known to the source 'files'; did you mean group\?$"):
        parse_options({**NEEDED, "grup": "x"})


def test_two_ways_to_say_where_to_start_are_one_too_many() -> None:
    with pytest.raises(OptionError, match="stands beside startingOffsets"):
        parse_options({**NEEDED, "startingOffsets": "earliest", "startingTimestamp": "5"})


def test_a_source_brings_options_of_its_own() -> None:
    own = (OptionSpec("pathTo", "somewhere"),)
    options = parse_options({**NEEDED, "pathto": "/x", "k.a": "1"}, source_options=own, source_prefix="k.")
    assert options.source.own == {"pathTo": "/x", "k.a": "1"}
    with pytest.raises(OptionError, match=r"^option k\.: is not known"):
        parse_options({**NEEDED, "k.": "1"}, source_prefix="k.")


def test_the_source_decides_which_options_exist() -> None:
    options, found = parse_for_source(FILES)
    assert found.name == "files"
    assert options.source.own == {"path": "/data"}
    with pytest.raises(OptionError, match=r"^option kafka\.x: is not known to the source 'files'"):
        parse_for_source({**FILES, "kafka.x": "1"})


def test_a_source_that_is_not_named_is_kafka() -> None:
    given = {name: value for name, value in NEEDED.items() if name != "source"}
    assert parse_options(given).source.name == "kafka"
    with pytest.raises(OptionError, match=r"^option path: is not known to the source 'kafka'"):
        parse_for_source({**given, "kafka.bootstrap.servers": "127.0.0.1:9092", "path": "/data"})


def test_an_unknown_source_is_answered_with_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"'kinesis' is none of the known sources: .*files, kafka"):
        find_source("kinesis")


def test_the_token_is_not_shown_and_an_error_survives_pickling() -> None:
    assert "s3cret" not in repr(parse_options({**NEEDED, "token": "s3cret"}))
    error = pickle.loads(pickle.dumps(OptionError("group", "is required")))
    assert (error.option, str(error)) == ("group", "option group: is required")


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("250", 250), ("90s", 90_000), ("15m", 900_000), ("2 H", 7_200_000), ("1d", 86_400_000)]
)
def test_a_time_has_a_unit_or_is_in_milliseconds(text: str, milliseconds: int) -> None:
    given = {**NEEDED, "minOffsetsPerTrigger": "5", "maxTriggerDelay": text}
    assert parse_options(given).max_trigger_delay_ms == milliseconds


@pytest.mark.parametrize("text", ["soon", "5 weeks", "-1s", "1.5h", "s"])
def test_a_time_that_is_none_is_named(text: str) -> None:
    with pytest.raises(OptionError, match=r"^option maxTriggerDelay: .* is not a time like"):
        parse_options({**NEEDED, "minOffsetsPerTrigger": "5", "maxTriggerDelay": text})


def test_at_least_cannot_be_more_than_at_most() -> None:
    with pytest.raises(OptionError, match=r"^option minOffsetsPerTrigger: 9 is more than maxOffsetsPerTrigger, 8$"):
        parse_options({**NEEDED, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"})


def test_a_pattern_instead_of_topics() -> None:
    raw = {name: value for name, value in NEEDED.items() if name != "subscribe"}
    options = parse_options({**raw, "subscribePattern": "click.*", "startingOffsets": '{"clicks":{"0":5}}'})
    assert options.topics == ()
    assert options.topic_pattern is not None
    with pytest.raises(OptionError, match="names the topic 'orders', which is not subscribed to"):
        parse_options({**raw, "subscribePattern": "click.*", "startingOffsets": '{"orders":{"0":5}}'})


def test_times_of_single_partitions() -> None:
    times = '{"a":{"0":1767225600000}}'
    starting = parse_options({**NEEDED, "startingOffsetsByTimestamp": times}).starting
    assert [starting.time_of(("a", p)) for p in (0, 1)] == [1767225600000, None]
    assert starting.of(("a", 1)) == EARLIEST
    assert starting.too_young == "error"
    lenient = {"startingOffsetsByTimestamp": times, "startingOffsetsByTimestampStrategy": "Latest"}
    assert parse_options({**NEEDED, **lenient}).starting.too_young == "latest"


def test_a_static_member_has_one_name() -> None:
    assert parse_options({**NEEDED, "staticMembership": "true"}).static_membership
    with pytest.raises(OptionError, match=r"^option staticMembership: stands beside groupInstanceId"):
        parse_options({**NEEDED, "staticMembership": "true", "groupInstanceId": "x"})
