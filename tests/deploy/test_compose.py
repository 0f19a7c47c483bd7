"""deploy/compose: what each file mounts is there, the service takes its variables, and containers find each other."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rallypoint.coordinator.access.tokens import hash_token
from rallypoint.coordinator.settings import Settings, load_settings, unknown_variables, variable_of
from tests.deploy.test_prometheus_rules import ROOT

FOLDER = ROOT / "deploy" / "compose"
NODES = ("node-1", "node-2", "node-3")
IN_COMPOSE = [("compose.yaml", "rallypoint"), *[("cluster.yaml", node) for node in NODES]]
EXPANSION = re.compile(r"\$\{(\w+):-([^}]*)\}")


def services(file: str) -> dict[str, dict[str, Any]]:
    parsed: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / file).read_text())["services"]
    return parsed


def image_variables() -> dict[str, str]:
    """What the image sets by itself."""
    (text,) = re.findall(r"^ENV ((?:.*\\\n)*.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    return dict(word.split("=", 1) for word in text.replace("\\\n", " ").split())


def settings_of(
    file: str, name: str, monkeypatch: pytest.MonkeyPatch, operator: dict[str, str] | None = None
) -> Settings:
    """Of a container; `operator`: the variables that the one has set who starts it."""
    given = operator or {}
    variables = {**image_variables(), **services(file)[name]["environment"]}
    assert all(isinstance(value, str) for value in variables.values())
    for setting in map(variable_of, Settings.model_fields):
        monkeypatch.delenv(setting, raising=False)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, EXPANSION.sub(lambda found: given.get(found[1], found[2]), value))
    assert unknown_variables(variables) == []
    return load_settings({})


def published(service: dict[str, Any]) -> dict[int, int]:
    """The port of the container by that of the machine; each on loopback alone."""
    parts = [port.split(":") for port in service.get("ports", ())]
    assert all(address == "127.0.0.1" for address, _, _ in parts)
    return {int(outside): int(inside) for _, outside, inside in parts}


@pytest.mark.parametrize("file", ["compose.yaml", "cluster.yaml"])
def test_what_is_mounted_is_there(file: str) -> None:
    parsed = yaml.safe_load((FOLDER / file).read_text())
    for service in parsed["services"].values():
        for mount in service.get("volumes", ()):
            source, target = mount.split(":")[:2]
            assert target.startswith("/")
            if source.startswith("."):
                assert (FOLDER / source).is_file(), source
                assert mount.endswith(":ro")
            else:
                assert source in parsed["volumes"]
        if "build" in service:
            assert (FOLDER / service["build"]["context"] / "Dockerfile").resolve() == ROOT / "Dockerfile"
        else:
            assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]), "a version, which does not move"


@pytest.mark.parametrize(("file", "name"), IN_COMPOSE)
def test_a_container_has_few_rights_and_time_to_stop(file: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = services(file)[name]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert "/tmp" in service["tmpfs"]
    grace = int(service["stop_grace_period"].removesuffix("s")) * 1000
    assert grace > settings_of(file, name, monkeypatch).drain_timeout_ms + 1500


def test_one_node_serves_this_machine_and_its_network(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of("compose.yaml", "rallypoint", monkeypatch)
    service = services("compose.yaml")["rallypoint"]
    assert published(service) == {8000: settings.port}
    assert (settings.host, settings.advertised_url) == ("0.0.0.0", "http://localhost:8000")
    assert "rallypoint" in settings.allowed_hosts
    assert settings.tokens == ()
    volume = settings.storage.removeprefix("sqlite:///").rpartition("/")[0]
    assert f"data:{volume}" in service["volumes"]

    url = "http://rallypoint:8000"
    operator = {"RALLYPOINT_TOKENS": hash_token("honest"), "RALLYPOINT_ADVERTISED_URL": url}
    settings = settings_of("compose.yaml", "rallypoint", monkeypatch, operator)
    assert (settings.tokens, settings.advertised_url) == ((hash_token("honest"),), url)


def test_the_nodes_of_the_cluster_reach_each_other_as_clients_do(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [settings_of("cluster.yaml", node, monkeypatch) for node in NODES]
    given = services("cluster.yaml")
    assert [settings.node_id for settings in found] == list(NODES)
    assert [settings.advertised_url for settings in found] == [f"http://localhost:{it.port}" for it in found]
    (network,) = {given[node]["network_mode"] for node in NODES}
    holder = given[network.removeprefix("service:")]
    assert published(holder) == {settings.port: settings.port for settings in found}
    (storage,) = {settings.storage for settings in found}
    assert f"--listen-client-urls={storage.replace('etcd:', 'http:')}" in holder["command"]


def test_prometheus_scrapes_the_service_and_grafana_asks_prometheus(monkeypatch: pytest.MonkeyPatch) -> None:
    given = services("compose.yaml")
    scraped = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    settings = settings_of("compose.yaml", "rallypoint", monkeypatch)
    (job,) = scraped["scrape_configs"]
    ((host, _, port),) = [target.partition(":") for it in job["static_configs"] for target in it["targets"]]
    assert (host in given, host in settings.allowed_hosts, int(port)) == (True, True, settings.port)
    assert settings.metrics_need_token is False
    mounts = [mount.split(":") for mount in given["prometheus"]["volumes"]]
    inside = {Path(target).name for _, target, *_ in mounts}
    assert set(scraped["rule_files"]) <= inside

    (source,) = yaml.safe_load((FOLDER / "grafana" / "datasource.yaml").read_text())["datasources"]
    assert source["url"] == f"http://prometheus:{published(given['prometheus'])[9090]}"
    (provider,) = yaml.safe_load((FOLDER / "grafana" / "dashboards.yaml").read_text())["providers"]
    places = {target: source for source, target, _ in (mount.split(":") for mount in given["grafana"]["volumes"])}
    (dashboard,) = [target for target in places if target.startswith(provider["options"]["path"])]
    assert (FOLDER / places[dashboard]).resolve() == ROOT / "deploy" / "grafana" / "rallypoint.json"
    assert given["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == dashboard
