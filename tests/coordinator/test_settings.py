"""Where settings come from, which goes before which, and what is said about wrong ones."""

import re
import string
from pathlib import Path
from typing import Any

import pytest

from rallypoint.coordinator.access.tokens import TokenEntry, hash_token
from rallypoint.coordinator.http.access.control import AccessControl
from rallypoint.coordinator.http.hosts import host_of_authority
from rallypoint.coordinator.main import read_access_files
from rallypoint.coordinator.settings import (
    CONFIG_VARIABLE,
    Settings,
    SettingsError,
    flag_of,
    load_settings,
    unknown_variables,
    variable_of,
)
from rallypoint.protocol.environment import MEMBER_OPTIONS_FROM_ENVIRONMENT

HASH = hash_token("a token")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [CONFIG_VARIABLE, *map(variable_of, Settings.model_fields)]:
        monkeypatch.delenv(name, raising=False)


def toml(directory: Path, text: str) -> Path:
    path = directory / "rallypoint.toml"
    path.write_text(text)
    return path


def test_the_defaults_are_those_of_the_contract() -> None:
    settings = load_settings({})
    expected = {
        "host": "127.0.0.1",
        "port": 8000,
        "shards": 50,
        "group_min_session_timeout_ms": 6000,
        "group_max_session_timeout_ms": 1800000,
        "group_initial_rebalance_delay_ms": 3000,
        "offset_metadata_max_bytes": 4096,
        "parked_call_max_wait_ms": 55000,
    }
    assert settings.model_dump(include=set(expected)) == expected
    assert settings.storage.startswith("sqlite:///")


def test_a_flag_goes_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = toml(tmp_path, 'port = 1\nshards = 1\nnode_id = "file"\nallowed_hosts = ["A", "b"]\n')
    monkeypatch.setenv("RALLYPOINT_PORT", "2")
    monkeypatch.setenv("RALLYPOINT_SHARDS", "2")
    settings = load_settings({"port": "3"}, path)
    assert (settings.port, settings.shards, settings.node_id, settings.groups_max) == (3, 2, "file", 100_000)
    assert settings.allowed_hosts == ("a", "b")


def test_the_environment_can_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONFIG_VARIABLE, str(toml(tmp_path, "port = 7")))
    assert load_settings({}).port == 7
    other = tmp_path / "other.toml"
    other.write_text("port = 8")
    assert load_settings({}, other).port == 8


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RALLYPOINT_ALLOWED_ORIGINS", "https://A.example.org/, http://b:81 ,")
    assert load_settings({}).allowed_origins == ("https://a.example.org", "http://b:81")
    assert load_settings({"allowed_origins": ""}).allowed_origins == ()


TLS = {"tls_certificate": "node.pem", "tls_key": "node.key"}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"port": "65536"}, ["--port", "65535"]),
        ({"port": "eight"}, ["--port: 'eight' is not a whole number."]),
        ({"port": "-1"}, ["--port: '-1' is below the least, 0."]),
        ({"port": "9" * 5000}, ["--port: '999", "…"]),
        ({"node_id": ""}, ["--node-id: it must not be empty."]),
        ({"log_format": "xml"}, ["--log-format: 'xml' is not 'text' or 'json'."]),
        ({"insecure": "perhaps"}, ["--insecure: 'perhaps' is not true or false."]),
        ({"port": "1", "shards": "0", "log_level": "loud"}, ["--shards", "--log-level"]),
        ({"group_min_session_timeout_ms": "2000000"}, ["group_min_session_timeout_ms (2000000)", "(1800000)"]),
        ({"bodies_max_bytes": "40000"}, ["--bodies-max-bytes", "33554432"]),
        ({"heartbeat_interval_ms": "2000000"}, ["heartbeat_interval_ms (2000000)", "(1800000)"]),
        ({"join_wait_max_ms": "2000"}, ["heartbeat_interval_ms (3000)", "(2000)"]),
        ({"group_max_size": "20001"}, ["--group-max-size", "20000"]),
        ({"storage": "postgres://x"}, ["--storage", "memory:"]),
        ({"storage": "sqlite:///"}, ["--storage"]),
        ({"advertised_url": "rally.example.org"}, ["--advertised-url", "http://host:port"]),
        ({"advertised_url": "http://a/b"}, ["--advertised-url"]),
        ({"advertised_url": "http://user@a"}, ["--advertised-url"]),
        ({"advertised_url": "http://[::1"}, ["--advertised-url"]),
        ({"advertised_url": "http://a b"}, ["--advertised-url", "'http://a b'"]),
        ({"allowed_origins": "*"}, ["--allowed-origins"]),
        ({"allowed_hosts": "http://a"}, ["--allowed-hosts", "bare host name"]),
        ({"allowed_hosts": "a:80"}, ["--allowed-hosts", "bare host name"]),
        ({"allowed_hosts": "a b"}, ["--allowed-hosts", "'a b' is not a bare host name, so no client can send it"]),
        ({"allowed_hosts": "fe80::a"}, ["--allowed-hosts", "an IPv6 address in brackets"]),
        ({"allowed_hosts": "*.example.org"}, ["--allowed-hosts", "bare host name"]),
        ({"allowed_hosts": "b\N{LATIN SMALL LETTER U WITH DIAERESIS}cher.example"}, ["--allowed-hosts", "`xn--`"]),
        ({"insecure": "perhaps"}, ["--insecure"]),
        ({"host": "0.0.0.0"}, ["0.0.0.0", "rallypoint token", "--insecure"]),
        ({"host": "rally.example.org"}, ["rally.example.org", "rallypoint token", "--insecure"]),
        ({"host": "::"}, ["--insecure"]),
        ({"tls_certificate": "a.pem"}, ["tls_certificate and tls_key belong together"]),
        ({"tls_client_ca": "ca.pem"}, ["tls_client_ca needs tls_certificate"]),
        ({"tls_cluster_ca": "ca.pem"}, ["tls_cluster_ca needs tls_certificate"]),
        (TLS | {"tls_client_auth": "optional"}, ["tls_client_auth needs tls_client_ca"]),
        (TLS | {"tls_client_ca": "ca.pem", "tls_client_auth": "perhaps"}, ["'required' or 'optional'"]),
        (TLS | {"host": "0.0.0.0"}, ["tls_client_ca", "--insecure"]),
        (TLS | {"advertised_url": "http://a:1"}, ["advertised_url http://a:1", "speaks TLS"]),
        ({"host": ""}, ["--host"]),
    ],
)
def test_wrong_settings_are_named(flags: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(flags)
    for word in words:
        assert word in str(caught.value)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_each_allowed_host_is_one_that_a_request_can_name() -> None:
    refused = ""
    for character in map(chr, range(1, 256)):
        host = f"a{character}b"
        try:
            allowed = load_settings({"allowed_hosts": host}).allowed_hosts
        except SettingsError:
            refused += character
        else:
            assert list(allowed) == [host_of_authority(name) for name in host.split(",")]
    assert not set(refused) & {*string.ascii_letters, *string.digits, *"-_."}
    assert load_settings({"allowed_hosts": "A.,[FE80::1],1.2.3.4,*"}).allowed_hosts == (
        "a",
        "[fe80::1]",
        "1.2.3.4",
        "*",
    )


def test_the_place_of_a_wrong_setting_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="port in the settings file: "):
        load_settings({}, toml(tmp_path, "port = -1"))
    monkeypatch.setenv("RALLYPOINT_PORT", "x")
    with pytest.raises(SettingsError, match="RALLYPOINT_PORT: "):
        load_settings({})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "::1"])
def test_loopback_needs_no_token(host: str) -> None:
    assert load_settings({"host": host}).host == host


def read_access(settings: Settings) -> AccessControl:
    access, _ = read_access_files(settings)
    return access


def test_a_token_or_a_word_opens_the_service(tmp_path: Path) -> None:
    assert load_settings({"host": "0.0.0.0", "tokens": HASH}).token_entries() == (TokenEntry("unnamed", HASH),)
    assert load_settings({"host": "0.0.0.0", "insecure": True}).insecure
    file = tmp_path / "tokens"
    file.write_text(f"# etl\n{HASH}\n\n  etl {hash_token('b')} expires=2100-01-01  \n")
    access = read_access(load_settings({"host": "0.0.0.0", "token_file": str(file), "tokens": hash_token("c")}))
    names = [None if permit is None else permit.caller.name for permit in (access.find(one, 0) for one in "bcd")]
    assert names == ["token:etl", "token:unnamed", None]


@pytest.mark.parametrize("text", ["", "# nothing\n", "rp_plain-token\n", HASH.upper(), HASH[:-1]])
def test_a_token_file_without_hashes_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        read_access(load_settings({"token_file": file}))
    assert "rallypoint token" in str(caught.value)
    assert "rp_plain" not in str(caught.value)


def test_a_token_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        read_access(load_settings({"token_file": tmp_path / "none"}))


def test_a_policy_file_that_cannot_be_used_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    file.write_text('[[allow]]\nwho = ["token:a"]\nmay = ["fly"]\non = ["cluster"]\n')
    with pytest.raises(SettingsError, match="Line 3: may: there is no right 'fly'"):
        read_access(load_settings({"access": file}))


def test_the_token_for_other_nodes_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("rp_of-the-cluster\n")
    assert load_settings({"cluster_token_file": file}).cluster_token() == "rp_of-the-cluster"
    assert load_settings({}).cluster_token() is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must hold one token"),
        ("rp_one\nrp_two\n", "must hold one token"),
        ("rp_\u0436", "must hold one token"),
        (HASH, "holds the hash of a token; it must hold the token itself"),
    ],
)
def test_a_file_without_one_token_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(SettingsError, match=words) as caught:
        load_settings({"cluster_token_file": file}).cluster_token()
    assert "rp_" not in str(caught.value)
    with pytest.raises(SettingsError, match=r"cluster_token_file .* cannot be read: No such file"):
        load_settings({"cluster_token_file": tmp_path / "none"}).cluster_token()


def test_a_plain_token_is_refused_and_not_repeated() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"tokens": "rp_secret"})
    assert "rallypoint token" in str(caught.value)
    assert "rp_secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot = 1", "no setting of the name prot"),
        ("port = 1\nid_length_max = 20", "names what cannot be set: id_length_max is fixed at 255\\.$"),
        ("sessions_max = 20", "names what cannot be set: sessions_max is called channels_max\\.$"),
        (
            "session_calls_max = 20",
            "session_calls_max, which is called channel_calls_max now, is fixed at 1000\\.$",
        ),
        (
            "prot = 1\nid_length_max = 20\nhots = 2",
            "names what cannot be set: id_length_max is fixed at 255\\. .* has no setting of the name hots, prot\\.$",
        ),
        ("port = ", "is not TOML"),
        ("[port]\na = 1", "port in"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_settings({}, toml(tmp_path, text))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        load_settings({}, tmp_path / "none.toml")


VALUES = ["x", "", -1, 10**30, 1.5, "9" * 5000, None, [], {}, [1], ["x", []], True, b"\xff", "\ud800", float("inf")]


@pytest.mark.parametrize("name", Settings.model_fields)
def test_what_is_wrong_is_said_in_our_own_words(name: str) -> None:
    said = []
    for value in VALUES:
        try:
            load_settings({name: value})
        except SettingsError as error:
            said.append(str(error))
    assert said
    for text in said:
        assert not re.search(r"[Ii]nput|valid (int|str|bool|tup|path)|[Vv]alue error|pars|<class", text), text
    if name == "tokens":
        with pytest.raises(SettingsError) as caught:
            load_settings({name: {"rp_secret": 1}})
        assert "rp_secret" not in str(caught.value)


def test_a_member_s_variables_are_not_taken_for_misspelt() -> None:
    assert unknown_variables({f"RALLYPOINT_{name.upper()}": "x" for name in MEMBER_OPTIONS_FROM_ENVIRONMENT}) == []


def test_misspelt_variables_are_found() -> None:
    environ = {"RALLYPOINT_PROT": "1", "RALLYPOINT_PORT": "1", CONFIG_VARIABLE: "x", "PATH": "/bin"}
    assert unknown_variables(environ) == ["RALLYPOINT_PROT"]


def test_every_setting_says_what_it_is() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name
        assert isinstance(field.json_schema_extra, dict), name
        if name.endswith("_ms"):
            assert "milliseconds" in field.description, name
        assert flag_of(name) == "--" + name.replace("_", "-")


def test_asking_for_certificates_is_as_good_as_tokens() -> None:
    assert load_settings(TLS | {"host": "0.0.0.0", "tls_client_ca": "ca.pem"}).tls_client_auth == "required"
    assert load_settings(TLS | {"host": "0.0.0.0", "tls_client_ca": "ca.pem", "tls_client_auth": "optional"})
