"""Who the spans say that they are of."""

import pytest

from rallypoint.coordinator.tracing.provider import TracingUnsuitable, open_tracing, resource_of


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({}, "rallypoint"),
        ({"OTEL_SERVICE_NAME": "mine"}, "mine"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "a=b, service.name=mine"}, "mine"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "peer.service.name=theirs"}, "rallypoint"),
    ],
)
def test_what_the_variables_say_counts_more(
    variables: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)  # the SDK reads them itself
    attributes = resource_of("node-1", "1.2", variables).attributes
    assert (attributes["service.name"], attributes["service.instance.id"]) == (name, "node-1")


@pytest.mark.parametrize(
    "variables", [{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, {"OTEL_TRACES_EXPORTER": "console"}], ids=str
)
def test_what_cannot_be_done_is_refused_by_its_name(variables: dict[str, str]) -> None:
    with pytest.raises(TracingUnsuitable, match=next(iter(variables))):
        open_tracing("node-1", "1.2", variables)
