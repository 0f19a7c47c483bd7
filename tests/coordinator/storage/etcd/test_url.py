"""What an etcd's URL may say."""

from pathlib import Path

import pytest

from rallypoint.coordinator.storage.engines import StorageUrlInvalid, back_up_store, check_url
from rallypoint.coordinator.storage.etcd.url import EtcdUrl, parse


@pytest.mark.parametrize(
    ("url", "means"),
    [
        ("etcd://a", EtcdUrl(("a:2379",))),
        ("etcd://a:1,b:2,[::1]:3/", EtcdUrl(("a:1", "b:2", "[::1]:3"))),
        ("etcd://[fe80::1]/my%20own/prefix/", EtcdUrl(("[fe80::1]:2379",), "my own/prefix")),
        ("etcd://a/p?tls=true&lease_ttl_ms=3000", EtcdUrl(("a:2379",), "p", tls=True, lease_ttl_ms=3000)),
        (
            "etcd://a?user=u&password_file=/p&ca_file=ca&cert_file=c&key_file=k",
            EtcdUrl(
                ("a:2379",),
                user="u",
                password_file=Path("/p"),
                ca_file=Path("ca"),
                cert_file=Path("c"),
                key_file=Path("k"),
                tls=True,
            ),
        ),
    ],
)
def test_what_a_url_means(url: str, means: EtcdUrl) -> None:
    assert parse(url) == check_url(url) == means


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("etcd://", "no HOST:PORT"),
        ("etcd:///p", "no HOST:PORT"),
        ("etcd://a:0", "no port"),
        ("etcd://a:65536", "no port"),
        ("etcd://a:x", "no port"),
        ("etcd://a,", "no HOST:PORT"),
        ("etcd://::1:2379", "needs brackets"),
        ("etcd://[]:1", "needs brackets"),
        ("etcd://u:p@a", "password_file"),
        ("etcd://a?password=p", "password_file"),
        ("etcd://a?user=u", "belong together"),
        ("etcd://a?cert_file=c", "belong together"),
        ("etcd://a?other=1", "no parameter 'other'"),
        ("etcd://a?tls=true&tls=true", "twice"),
        ("etcd://a?tls=yes", "true or false"),
        ("etcd://a?tls=false&ca_file=f", "tls=false"),
        ("etcd://a?tls", "cannot be read"),
        ("etcd://a?ca_file=", "no value"),
        ("etcd://a?lease_ttl_ms=1999", "from 2000"),
        ("etcd://a/p#f", "#"),
        (f"etcd://a/{'p' * 129}", "128 bytes"),
    ],
)
def test_what_is_wrong_with_a_url_is_said(url: str, says: str) -> None:
    with pytest.raises(StorageUrlInvalid, match=says):
        check_url(url)


def test_a_backup_of_an_etcd_is_for_its_own_tools(tmp_path: Path) -> None:
    with pytest.raises(StorageUrlInvalid, match="etcdctl snapshot save"):
        back_up_store("etcd://a", tmp_path / "backup")
