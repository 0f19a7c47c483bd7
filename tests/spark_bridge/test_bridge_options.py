"""Options: what is taken, and that what is wrong is named in one sentence."""

import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

from rallypoint.assignors import registry
from rallypoint.member.tls_files import TlsFiles
from rallypoint.spark_bridge.errors import OptionError
from rallypoint.spark_bridge.member_options import SPELLING, member_options
from rallypoint.spark_bridge.option_text import whole_number
from rallypoint.spark_bridge.options import EARLIEST, LATEST, OptionSpec, parse_options
from rallypoint.spark_bridge.planner import new_checkpoint_id
from rallypoint.spark_bridge.sources.registry import find_source, parse_for_source
from tests.fakes.certificates import Authority
from tests.real.parts import ROOT

SECRET = "marked-secret"
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
    assert not options.allow_file_sink


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
        ("coordinator", "http://127.0.0.1:99999", "is not a URL"),
        ("coordinator", "http://127.0.0.1:x", "is not a URL"),
        ("coordinator", "http://[::1", "is not a URL"),
        ("coordinator", "http://a..b", "is not a URL"),
        ("coordinator", "http://u:p@h:1", "must not hold a query, a fragment or a user name"),
        ("coordinator", "http://h:1/?a=b", "must not hold a query, a fragment or a user name"),
        ("coordinator", "http://h:1,http://h:1/#x", "must not hold a query, a fragment or a user name"),
        ("coordinator", "http://u:se/same@h:1/?same", "'http://…@h:1/.…' is not a URL"),
        ("group", "..", "cannot be part of a path"),
        ("group", "x" * 256, "must have 1 to 255 characters"),
        ("group", "\udc80", "has no form in UTF-8"),
        ("subscribe", "a,..", "cannot be part of a path"),
        ("subscribe", "x" * 256, "must have 1 to 255 characters"),
        ("clientId", "x" * 256, "must have 1 to 255 characters"),
        ("groupInstanceId", "x" * 256, "must have 1 to 255 characters"),
        ("rackId", "x" * 256, "must have 1 to 255 characters"),
        ("token", "two\nlines", "control characters"),
        ("assignor", ",".join(f"x{n}" for n in range(33)), "no assignor is called"),
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
        ("startingOffsetsByTimestampStrategy", "latest", "has no effect without startingTimestamp or"),
        ("maxTriggerDelay", "15m", "has no effect without minOffsetsPerTrigger"),
        ("minPartitions", "-1", "whole number from 1"),
        ("maxRecordsPerPartition", "1.5", "whole number from 1"),
        ("subscribePattern", "c.*", "cannot be combined with subscribe"),
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


UNUSABLE: dict[str, Any] = {
    "coordinator": "nowhere",
    "group_id": "",
    "topics": (),
    "topics_pattern": "a.*",
    "metadata_max_age_ms": 0,
    "client_id": "",
    "group_instance_id": "",
    "assignors": ("range", "range"),
    "session_timeout_ms": 0,
    "rebalance_timeout_ms": 0,
    "ca": "",
    "certificate": "",
    "key": "without-its-certificate.key",
    "token": "two\nlines",
    "rack_id": "",
    "call_timeout_ms": 0,
}


def test_what_the_member_refuses_is_named_as_here() -> None:
    usable = {name: getattr(parse_options(NEEDED).member_options(None), name) for name in SPELLING}
    assert UNUSABLE.keys() == SPELLING.keys() - {"eager"}, "nothing of it is refused"
    for name, value in UNUSABLE.items():
        with pytest.raises(OptionError) as caught:
            member_options({**usable, name: value})
        assert caught.value.option == SPELLING[name]


@pytest.mark.parametrize("name", ["coordinator", "group", "subscribe"])
def test_what_is_required_is_named(name: str) -> None:
    with pytest.raises(OptionError, match=f"^option {name}: is required$"):
        parse_options({key: value for key, value in NEEDED.items() if key != name})


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(OptionError, match=r"^option grup: is not known to the source 'files'; did you mean group\?$"):
        parse_options({**NEEDED, "grup": "x"})


def test_two_ways_to_say_where_to_start_are_one_too_many() -> None:
    with pytest.raises(OptionError, match="cannot be combined with startingOffsets"):
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


def test_a_path_that_is_no_directory_is_refused_and_one_that_is_not_there_yet_is_not(tmp_path: Path) -> None:
    file = tmp_path / "clicks.jsonl"
    file.touch()
    for path in (file, file / "deeper", f"{tmp_path}/a\0b"):
        with pytest.raises(OptionError, match=r"^option path: '.*' is not a directory$"):
            parse_for_source({**FILES, "path": str(path)})
    parse_for_source({**FILES, "path": str(tmp_path / "later")})


def test_an_unknown_source_is_answered_with_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"'kinesis' is none of the known sources: .*files, kafka"):
        find_source("kinesis")


def test_a_token_may_come_from_a_file_that_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    options = parse_options({**NEEDED, "tokenFile": str(file)})
    assert callable(options.token)
    assert options.token() == "first"
    file.write_text("second")
    assert options.token() == "second"
    with pytest.raises(OptionError, match="option tokenFile: cannot be combined with token"):
        parse_options({**NEEDED, "tokenFile": str(file), "token": "x"})
    file.write_text("two\nlines")
    with pytest.raises(OptionError, match=r"option tokenFile: cannot be read: .* several lines"):
        parse_options({**NEEDED, "tokenFile": str(file)})
    file.unlink()
    with pytest.raises(OptionError, match=r"option tokenFile: cannot be read: .*No such file"):
        parse_options({**NEEDED, "tokenFile": str(file)})


def test_tls_files_are_looked_at_when_options_are_read_and_reach_the_member(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine = authority.sign("me", "me.example.org")
    files = {"ca": str(authority.ca), "certificate": str(mine.certificate), "key": str(mine.key)}
    options = parse_options({**NEEDED, **files})
    assert options.tls == TlsFiles(**files)
    assert options.member_options(None).tls == options.tls
    assert parse_options(NEEDED).tls is None
    for changes, option in (
        ({"ca": str(tmp_path / "gone")}, "ca"),
        ({"key": str(authority.ca)}, "certificate"),
        ({"certificate": ""}, "certificate"),
    ):
        with pytest.raises(OptionError) as refused:
            parse_options({**NEEDED, **files, **changes})
        assert refused.value.option == option
    with pytest.raises(OptionError, match="option key: it needs `certificate`"):
        parse_options({**NEEDED, "key": files["key"]})


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
    longest = {**NEEDED, "staticMembership": "true", "clientId": "x" * 238}
    assert len(parse_options(longest).instance_id(new_checkpoint_id()) or "") == 255
    with pytest.raises(OptionError, match=r"^option clientId: .* must have 1 to 255 characters$"):
        parse_options({**longest, "clientId": "x" * 239})
    with pytest.raises(OptionError, match=r"^option staticMembership: cannot be combined with groupInstanceId"):
        parse_options({**NEEDED, "staticMembership": "true", "groupInstanceId": "x"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"kafka.sasl.jaas.config": SECRET},
        {"kafka.ssl.keystore.key": SECRET},
        {"kafka.ssl.key.pem": SECRET},
        {"token": f"{SECRET}\n"},
        {"tokens": SECRET},
        {"coordinator": f"http://user:{SECRET}@127.0.0.1:1"},
        {"kafka.sasl.password": SECRET, "kafka.sasl.mechanism": "none"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_an_error_says_no_secret(wrong: dict[str, str]) -> None:
    pytest.importorskip("confluent_kafka")
    good = {**NEEDED, "source": "kafka", "kafka.bootstrap.servers": "127.0.0.1:9092"}
    sasl = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.username": "reader", "kafka.sasl.password": "other"}
    with pytest.raises(OptionError) as caught:
        parse_for_source({**good, **sasl, **wrong})
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_options_show_no_secret_where_somebody_prints_them() -> None:
    pytest.importorskip("confluent_kafka")
    given = {**NEEDED, "source": "kafka", "kafka.bootstrap.servers": "127.0.0.1:9092", "token": SECRET}
    options, source = parse_for_source({**given, "kafka.sasl.password": SECRET})
    assert options.source.own["kafka.sasl.password"] == SECRET
    for thing in (options, options.source, options.member_options(None), source(options.source)):
        assert SECRET not in repr(thing)


@pytest.mark.parametrize("name", ["OwnAssignor", "READY", "HoldsALock", "LOCKED"])
def test_an_assignor_of_the_programs_own_is_named_by_its_module(name: str) -> None:
    options = parse_options({**NEEDED, "assignor": f"tests.spark_bridge.own_assignor:{name}, cooperative-sticky"})
    options = pickle.loads(pickle.dumps(options))  # as Spark does
    (own, other) = options.member_options(None).assignors
    assert (getattr(own, "name", None), other) == ("own", "cooperative-sticky")
    assert not options.cooperative


def test_what_is_installed_is_not_read_with_each_trigger(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that waits for partitions asks with each, and Spark hands over other copies of the options."""
    options = parse_options(NEEDED)
    assert options.cooperative
    monkeypatch.setattr(registry, "entry_points", lambda **_: pytest.fail("what is installed is read again"))
    assert options.cooperative
    assert pickle.loads(pickle.dumps(options)).cooperative


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere:Own", "'nowhere:Own' cannot be imported: No module named 'nowhere'"),
        ("tests.spark_bridge.own_assignor:Other", "cannot be imported: module .* has no attribute 'Other'"),
        ("json:loads", "is no name, no subclass of rallypoint.assignors.Assignor and no instance of one"),
        ("rallypoint.assignors.contract:Assignor", "is not a class that implements"),
        ("tests.spark_bridge.own_assignor:Exits", r"cannot be made: SystemExit\(7\)"),
        ("tests.spark_bridge.exits_when_imported:Own", r"exits_when_imported:Own' cannot be imported: SystemExit\(7\)"),
    ],
)
def test_what_is_no_assignor_there_is_an_error(name: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_options({**NEEDED, "assignor": name})


NINES = "9" * 5000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sessionTimeoutMs", NINES),
        ("maxOffsetsPerTrigger", NINES),
        ("startingTimestamp", NINES),
        ("startingOffsets", f'{{"clicks":{{"0":{NINES}}}}}'),
        ("startingOffsets", f'{{"clicks":{{"{NINES}":1}}}}'),
        ("startingOffsets", '{"clicks":{"2147483648":1}}'),
        ("startingOffsets", "[" * 100_000),
        ("startingOffsets", '{"clicks":' + "[" * 300 + "]" * 300 + "}"),
        ("startingOffsetsByTimestamp", '{"a":' * 100_000),
    ],
)
def test_a_value_that_is_far_too_long_or_deep_is_refused_with_a_sentence(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"^option {name}: ") as caught:
        parse_options({**NEEDED, name: value})
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), ("0" * 5000, 0), ("300", 300), ("301", None)])
def test_a_whole_number_may_begin_with_zeros(text: str, number: int | None) -> None:
    assert whole_number(text, 300) == number


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", "1_0", "\u0663", " 1"])
def test_no_other_text_is_a_whole_number(text: str) -> None:
    assert whole_number(text, 300) is None


def test_json_of_others_is_parsed_in_one_place() -> None:
    """Elsewhere a text that is nested deeply would end a query by a RecursionError."""
    own = {"batch_loop.py", "control.py", "file_log.py", "json_text.py"}
    others = [
        path.name
        for path in (ROOT / "spark_bridge").rglob("*.py")
        if "json.loads(" in path.read_text("utf-8") and path.name not in own
    ]
    assert others == []
