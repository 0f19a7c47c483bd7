"""deploy/helm and deploy/kustomize, rendered by Helm and by the code of Kustomize: the API of Kubernetes takes what
comes out, its parts fit together, the service takes its variables, and a Pod has as few rights as it can.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rallypoint.coordinator.access.tokens import hash_token
from rallypoint.coordinator.http.hosts import is_host_name
from rallypoint.coordinator.main import read_access_files
from rallypoint.coordinator.settings import Settings, load_settings, unknown_variables, variable_of
from tests.real.manifests import RELEASES, RenderError, documents, faults, helm, kustomize
from tests.real.parts import ROOT

CHART = ROOT / "deploy" / "helm" / "rallypoint"
KUSTOMIZE = ROOT / "deploy" / "kustomize"
ETCD = "etcd://etcd:2379"
TOKENS = {"tokens": {"secretName": "rally-tokens"}}
CLUSTER = {"cluster": {"storage": ETCD, "replicas": 5, "secretName": "rally-etcd"}, **TOKENS}
FULL = {
    **CLUSTER,
    "image": {"repository": "registry.example.org/rallypoint", "digest": f"sha256:{'0' * 64}"},
    "imagePullSecrets": [{"name": "registry"}],
    "tls": {"secretName": "rally-tls", "clientAuth": "optional"},
    "advertisedUrl": "https://$(POD_NAME).rally.example.org",
    "allowedHosts": ["rally.example.org"],
    "settings": {"metrics_groups_max": 1_000_000, "metrics_need_token": False, "log_format": "json"},
    "podLabels": {"team": "streams"},
    "podAnnotations": {"note": "x"},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "priorityClassName": "high",
    "service": {"type": "LoadBalancer", "port": 443, "annotations": {"a": "b"}},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "tokenSecret": {"name": "scrape"}},
    "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {}}]},
}
REQUIRED = {"tls": {"secretName": "rally-tls", "clientAuth": "required"}, "ipFamily": "IPv6"}
CHARTS: dict[str, dict[str, Any]] = {
    "one node": TOKENS,
    "insecure": {"insecure": True, "volume": {"storageClass": "fast", "accessMode": "ReadWriteOncePod"}},
    "certificates": REQUIRED,
    "cluster": CLUSTER,
    "everything": FULL,
}
POD = {"POD_NAME": "rally-0", "POD_NAMESPACE": "streams", "POD_IP": "10.1.2.3"}


def values_file(folder: Path, values: dict[str, Any]) -> Path:
    path = folder / "values.yaml"
    path.write_text(json.dumps(values))
    return path


def chart(folder: Path, values: dict[str, Any]) -> list[dict[str, Any]]:
    where = ("rally", CHART, "--namespace", "streams")
    return documents(helm("template", *where, "--values", values_file(folder, values)))


def with_components(folder: Path) -> list[dict[str, Any]]:
    """The cluster with what its file offers in comments: the components, and an image of a registry."""
    overlay = folder / "deploy" / "kustomize" / "overlays" / "cluster"
    for file in sorted(KUSTOMIZE.rglob("*.yaml")):
        copy = folder / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(file.read_text())
    text = (overlay / "kustomization.yaml").read_text()
    before, offered, after = text.partition("# components:\n")
    (overlay / "kustomization.yaml").write_text(before + offered[2:] + re.sub("^# ", "", after, flags=re.MULTILINE))
    return documents(kustomize(overlay))


@pytest.fixture(scope="module", params=[*CHARTS, "base", "overlay", "components"])
def rendered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    tmp_path = tmp_path_factory.mktemp("rendered")
    match request.param:
        case "base":
            return documents(kustomize(KUSTOMIZE / "base"))
        case "overlay":
            return documents(kustomize(KUSTOMIZE / "overlays" / "cluster"))
        case "components":
            return with_components(tmp_path)
        case name:
            return chart(tmp_path, CHARTS[name])


def of_kind(rendered: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [document for document in rendered if document["kind"] == kind]


def stateful_set(rendered: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = of_kind(rendered, "StatefulSet")
    spec: dict[str, Any] = found["spec"]
    return spec


def container(rendered: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = stateful_set(rendered)["template"]["spec"]["containers"]
    one: dict[str, Any] = found
    return one


def pod_of(rendered: list[dict[str, Any]]) -> dict[str, str]:
    """What a kubelet says of a Pod: an address of the kind for which it is made."""
    is_ipv6 = any(entry.get("value") == "::" for entry in container(rendered)["env"])
    return {**POD, "POD_IP": "fd00::7"} if is_ipv6 else POD


def variables(rendered: list[dict[str, Any]], pod: dict[str, str] = POD) -> dict[str, str]:
    """What the process gets, as a kubelet expands it: by what stands before, and by nothing that stands behind."""
    known: dict[str, str] = {}
    fields = {"metadata.name": "POD_NAME", "metadata.namespace": "POD_NAMESPACE", "status.podIP": "POD_IP"}
    for entry in container(rendered)["env"]:
        assert entry["name"] not in known
        if "valueFrom" in entry:
            known[entry["name"]] = pod[fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]]
        else:
            known[entry["name"]] = re.sub(
                r"\$\((\w+)\)", lambda found: known.get(found[1], found[0]), str(entry["value"])
            )
            assert isinstance(entry["value"], str)
    return known


def settings_of(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in map(variable_of, Settings.model_fields):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert unknown_variables(given) == []
    return load_settings({})


def test_the_api_takes_every_document(rendered: list[dict[str, Any]]) -> None:
    names = [(document["kind"], document["metadata"]["name"]) for document in rendered]
    assert len(set(names)) == len(names) >= 3
    found = {
        (name, release): faults(it, release) for it, name in zip(rendered, names, strict=True) for release in RELEASES
    }
    assert {name: fault for name, fault in found.items() if fault} == {}


def test_a_fault_of_a_document_is_seen() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"prt": "x"}]}}
    (lacking, unknown) = sorted(faults(service, RELEASES[0]))
    assert "prt" in unknown
    assert "port" in lacking
    assert faults({**service, "kind": "Servce"}, RELEASES[0]) == ["no kind Servce in v1"]


def test_the_parts_fit_together(rendered: list[dict[str, Any]]) -> None:
    spec = stateful_set(rendered)
    labels = spec["template"]["metadata"]["labels"]

    def is_meant(selector: dict[str, str]) -> bool:
        return bool(selector) and selector.items() <= labels.items()

    assert is_meant(spec["selector"]["matchLabels"])
    services = {service["metadata"]["name"]: service for service in of_kind(rendered, "Service")}
    assert all(is_meant(service["spec"]["selector"]) for service in services.values())
    ports = {port["name"] for port in container(rendered)["ports"]}
    assert {port["targetPort"] for service in services.values() for port in service["spec"]["ports"]} == ports
    nodes = services[spec["serviceName"]]
    assert nodes["spec"]["clusterIP"] == "None"
    assert nodes["spec"]["publishNotReadyAddresses"] is True

    for budget in of_kind(rendered, "PodDisruptionBudget"):
        assert is_meant(budget["spec"]["selector"]["matchLabels"])
        assert budget["spec"]["maxUnavailable"] == 1
        assert spec["replicas"] > 1
    assert len(of_kind(rendered, "PodDisruptionBudget")) == (spec["replicas"] > 1)
    for policy in of_kind(rendered, "NetworkPolicy"):
        assert is_meant(policy["spec"]["podSelector"]["matchLabels"])
        assert {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]} == ports
    for monitor in of_kind(rendered, "ServiceMonitor"):
        asked = monitor["spec"]["selector"]["matchLabels"]
        chosen = [name for name, service in services.items() if asked.items() <= service["metadata"]["labels"].items()]
        assert chosen == [spec["serviceName"]]
        (endpoint,) = monitor["spec"]["endpoints"]
        assert {endpoint["port"]} == ports

    volumes = {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
    claims = {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates") or ()}
    mounts = {mount["name"]: mount["mountPath"] for mount in container(rendered)["volumeMounts"]}
    assert volumes.isdisjoint(claims)
    assert volumes | claims == set(mounts)
    assert {mounts["data"], mounts["tmp"]} == {"/data", "/tmp"}
    assert ("data" in claims) == (variables(rendered)["RALLYPOINT_STORAGE"].startswith("sqlite:////data/"))


def test_a_pod_has_the_rights_of_the_restricted_profile_and_no_more(rendered: list[dict[str, Any]]) -> None:
    pod, one = stateful_set(rendered)["template"]["spec"], container(rendered)
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (user,) = re.findall(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    rights = pod["securityContext"]
    assert (rights["runAsUser"], rights["runAsGroup"], rights["fsGroup"]) == (*map(int, user), int(user[1]))
    assert one["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert one["resources"]["limits"]["memory"]
    assert all(volume.keys() <= {"name", "emptyDir", "secret"} for volume in pod["volumes"])
    assert pod["terminationGracePeriodSeconds"] * 1000 > Settings().drain_timeout_ms + 1500


def test_the_probes_ask_what_they_are_for(rendered: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    one = container(rendered)
    settings = settings_of(variables(rendered, pod_of(rendered)), monkeypatch)
    probes = [one[name] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    if settings.tls_client_ca is not None and settings.tls_client_auth == "required":
        assert [probe["tcpSocket"] for probe in probes] == [{"port": "api"}] * 3
        return
    assert [probe["httpGet"]["path"] for probe in probes] == ["/healthz", "/healthz", "/readyz"]
    schemes = {probe["httpGet"].get("scheme", "HTTP") for probe in probes}
    assert schemes == {"HTTP" if settings.tls_certificate is None else "HTTPS"}


def test_the_service_takes_the_variables(rendered: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    given = variables(rendered, pod_of(rendered))
    settings = settings_of(given, monkeypatch)
    assert settings.port == container(rendered)["ports"][0]["containerPort"]
    assert settings.node_id == POD["POD_NAME"]
    assert settings.allowed_hosts[0] == {"0.0.0.0": "10.1.2.3", "::": "[fd00::7]"}[settings.host]
    assert all(is_host_name(host) and "$" not in host for host in settings.allowed_hosts)
    names = {service["metadata"]["name"] for service in of_kind(rendered, "Service")}
    served = {name for name in names if not name.endswith("-nodes")}
    for end in ("", ".streams", ".streams.svc", ".streams.svc.cluster.local"):
        assert {f"{name}{end}" for name in served} <= set(settings.allowed_hosts)

    url = settings.advertised_url or ""
    assert "$" not in url
    is_cluster = settings.storage.startswith("etcd:")
    replicas = stateful_set(rendered)["replicas"]
    assert is_cluster or replicas == 1
    assert (POD["POD_NAME"] in url) == is_cluster
    if url.endswith(":8000"):
        host = url.partition("://")[2].partition(":")[0].removeprefix(f"{POD['POD_NAME']}.")
        assert host.removesuffix(".streams.svc") in names
    files = [value for name, value in given.items() if name.endswith(("_FILE", "_CERTIFICATE", "_KEY", "_CA"))]
    mounts = [mount["mountPath"] for mount in container(rendered)["volumeMounts"] if mount.get("readOnly")]
    assert all(str(Path(file).parent) in mounts for file in files)
    assert files or settings.insecure
    assert (settings.cluster_token_file is not None) == (is_cluster and settings.token_file is not None)


def test_what_the_values_say_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = chart(tmp_path, FULL)
    settings = settings_of(variables(rendered), monkeypatch)
    assert (settings.metrics_groups_max, settings.metrics_need_token, settings.log_format) == (1_000_000, False, "json")
    assert settings.advertised_url == "https://rally-0.rally.example.org"
    assert "rally.example.org" in settings.allowed_hosts
    assert str(settings.tls_cluster_ca) == str(settings.tls_client_ca) == "/etc/rallypoint/tls/ca.crt"
    spec = stateful_set(rendered)
    assert (spec["replicas"], spec["podManagementPolicy"]) == (5, "Parallel")
    assert container(rendered)["image"] == f"registry.example.org/rallypoint@sha256:{'0' * 64}"
    pod = spec["template"]
    assert pod["metadata"]["labels"]["team"] == "streams"
    assert pod["metadata"]["annotations"] == {"note": "x"}
    assert pod["spec"]["nodeSelector"] == {"disk": "fast"}
    assert {volume["secret"]["secretName"] for volume in pod["spec"]["volumes"] if "secret" in volume} == {
        "rally-tokens",
        "rally-tls",
        "rally-etcd",
    }
    (service,) = [it for it in of_kind(rendered, "Service") if it["metadata"]["name"] == "rally"]
    assert (service["spec"]["type"], service["spec"]["ports"][0]["port"]) == ("LoadBalancer", 443)
    (monitor,) = of_kind(rendered, "ServiceMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["endpoints"][0]["authorization"]["credentials"] == {"name": "scrape", "key": "token"}
    assert monitor["spec"]["endpoints"][0]["scheme"] == "https"
    (policy,) = of_kind(rendered, "NetworkPolicy")
    assert {"namespaceSelector": {}} in policy["spec"]["ingress"][0]["from"]

    one = stateful_set(chart(tmp_path, CHARTS["insecure"]))["volumeClaimTemplates"][0]["spec"]
    assert (one["storageClassName"], one["accessModes"]) == ("fast", ["ReadWriteOncePod"])
    apart = {**CLUSTER, "affinity": {"nodeAffinity": {}}, "podDisruptionBudget": {"enabled": False}}
    assert stateful_set(chart(tmp_path, apart))["template"]["spec"]["affinity"] == {"nodeAffinity": {}}
    assert of_kind(chart(tmp_path, apart), "PodDisruptionBudget") == []


@pytest.mark.parametrize(("values", "folder"), [(TOKENS, "base"), (CLUSTER, "overlays/cluster")])
def test_the_chart_and_kustomize_run_the_same(values: dict[str, Any], folder: str, tmp_path: Path) -> None:
    of_chart = chart(tmp_path, {**values, "cluster": {**values.get("cluster", {}), "replicas": 3, "secretName": ""}})
    of_base = documents(kustomize(KUSTOMIZE / folder))

    def same(rendered: list[dict[str, Any]]) -> dict[str, Any]:
        """What has no name in it."""
        spec, one = stateful_set(rendered), container(rendered)
        pod = spec["template"]["spec"]
        of_pod = ("automountServiceAccountToken", "enableServiceLinks", "terminationGracePeriodSeconds")
        return {
            "variables": set(variables(rendered)) - {"POD_NAMESPACE"},
            "claims": [claim["spec"] for claim in spec.get("volumeClaimTemplates") or ()],
            "volumes": {volume["name"] for volume in pod["volumes"]},
            **{name: {**one[name], "httpGet": one[name]["httpGet"]["path"]} for name in one if name.endswith("Probe")},
            "replicas": spec["replicas"],
            "order": spec.get("podManagementPolicy", "OrderedReady"),
            "is spread": "affinity" in pod,
            **{name: pod[name] for name in (*of_pod, "securityContext")},
            **{name: one[name] for name in ("securityContext", "resources", "ports", "volumeMounts")},
        }

    def in_order(what: dict[str, Any]) -> dict[str, Any]:
        return {
            name: sorted(json.dumps(one, sort_keys=True) for one in it) if isinstance(it, list) else it
            for name, it in what.items()
        }

    assert in_order(same(of_chart)) == in_order(same(of_base))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "insecure: true"),
        ({"tls": {"clientAuth": "required"}}, "tls.clientAuth needs tls.secretName"),
        ({**TOKENS, "tls": {"secretName": "t"}, "advertisedUrl": "http://a"}, "has to begin with https://"),
        ({**CLUSTER, "advertisedUrl": "http://a"}, "has to contain $(POD_NAME)"),
        ({**TOKENS, "settings": {"storage": "memory:"}}, "storage"),
        ({**TOKENS, "settings": {"tokens": ["a"]}}, "tokens"),
        ({**TOKENS, "replicas": 3}, "replicas"),
        ({**TOKENS, "cluster": {"storage": "postgresql://a"}}, "storage"),
    ],
)
def test_wrong_values_are_refused_with_a_sentence(values: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(RenderError, match=re.escape(said)):
        chart(tmp_path, values)


@pytest.mark.parametrize("name", CHARTS)
def test_helm_finds_no_fault_with_the_chart(name: str, tmp_path: Path) -> None:
    said = helm("lint", "--strict", CHART, "--values", values_file(tmp_path, CHARTS[name]))
    assert "1 chart(s) linted, 0 chart(s) failed" in said
    assert re.findall(r"^\[(?!INFO).*", said, re.MULTILINE) == []


def test_the_chart_is_of_this_version() -> None:
    (version,) = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    (metadata,) = documents((CHART / "Chart.yaml").read_text())
    assert (metadata["version"], metadata["appVersion"]) == (version, version)
    assert metadata["kubeVersion"] == f">={RELEASES[0]}.0-0"


def test_hashes_are_what_the_secret_has_to_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hashes").write_text(f"{hash_token('honest')}\n")
    (tmp_path / "token").write_text("honest\n")
    given = variables(chart(tmp_path, CLUSTER))
    mounted = {name: value.replace("/etc/rallypoint/tokens", str(tmp_path)) for name, value in given.items()}
    settings = settings_of(mounted, monkeypatch)
    access, _ = read_access_files(settings)
    assert access.find("honest", 0) is not None
    assert settings.cluster_token() == "honest"
