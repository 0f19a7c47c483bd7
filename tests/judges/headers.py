"""Requests and responses with the header that each begins with. Their size, which stands before both, is not here.

A header's version follows from the message: a flexible message has a flexible header. The one exception is the answer
to ApiVersions, whose header is never flexible: a client reads it before it knows what the broker speaks.
"""

from collections.abc import Mapping
from struct import Struct, error
from typing import Any, NamedTuple

from tests.judges.codec import CodecError, decode, decode_first, encode
from tests.judges.schema import Message, load_messages

MESSAGES: Mapping[str, Message] = load_messages()
API_VERSIONS = 18
_KEY_AND_VERSION = Struct(">hh")


class Api(NamedTuple):
    """What is asked, and how it is answered."""

    request: Message
    response: Message


APIS: Mapping[int, Api] = {
    message.api_key: Api(message, MESSAGES[f"{name.removesuffix('Request')}Response"])
    for name, message in MESSAGES.items()
    if message.api_key is not None and message.type == "request"
}
"""By their keys: those of the group, and what names brokers."""


class RequestHeader(NamedTuple):
    """What every request begins with, whatever it asks."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def request_header_version(api: Api, version: int) -> int:
    """2 has tagged fields; Kafka 4 knows no 0."""
    return 2 if version in api.request.flexible else 1


def response_header_version(api: Api, version: int) -> int:
    """Of the answer to a request of this version; 1 has tagged fields."""
    return 1 if version in api.response.flexible and api.request.api_key != API_VERSIONS else 0


def read_key_and_version(data: bytes) -> tuple[int, int]:
    """Of a request that need not be one of `APIS`. CodecError where there is none."""
    try:
        key, version = _KEY_AND_VERSION.unpack_from(data)
    except error as short:
        raise CodecError("a request of less than four bytes") from short
    return key, version


def decode_header(data: bytes) -> tuple[RequestHeader, bytes]:
    """A request's header, and the rest. CodecError for an API that is not in `APIS`, or a version that it lacks."""
    key, version = read_key_and_version(data)
    if key not in APIS:
        raise CodecError(f"no API {key} here")
    api = APIS[key]
    if version not in api.request.versions:
        raise CodecError(f"{api.request.name} has no version {version}")
    header, rest = decode_first(MESSAGES["RequestHeader"], request_header_version(api, version), data)
    return RequestHeader(key, version, header["correlation_id"], header["client_id"]), rest


def decode_request(data: bytes) -> tuple[RequestHeader, dict[str, Any]]:
    """A request with its header. What comes after it is not looked at: nor does Kafka, and librdkafka sends more than
    there is. CodecError as `decode_header`.
    """
    header, rest = decode_header(data)
    return header, decode_first(APIS[header.api_key].request, header.api_version, rest)[0]


def encode_request(header: RequestHeader, value: Mapping[str, Any]) -> bytes:
    """The opposite of `decode_request`."""
    api = APIS[header.api_key]
    written = encode(
        MESSAGES["RequestHeader"],
        request_header_version(api, header.api_version),
        {
            "request_api_key": header.api_key,
            "request_api_version": header.api_version,
            "correlation_id": header.correlation_id,
            "client_id": header.client_id,
        },
    )
    return written + encode(api.request, header.api_version, value)


def encode_response(header: RequestHeader, value: Mapping[str, Any]) -> bytes:
    """The answer to the request with this header."""
    api = APIS[header.api_key]
    written = encode(
        MESSAGES["ResponseHeader"],
        response_header_version(api, header.api_version),
        {"correlation_id": header.correlation_id},
    )
    return written + encode(api.response, header.api_version, value)


def decode_response(header: RequestHeader, data: bytes) -> dict[str, Any]:
    """What a client reads of the answer to its request. CodecError for the answer to another one, too."""
    api = APIS[header.api_key]
    version = response_header_version(api, header.api_version)
    answered, rest = decode_first(MESSAGES["ResponseHeader"], version, data)
    if answered["correlation_id"] != header.correlation_id:
        raise CodecError(f"an answer to request {answered['correlation_id']}, not {header.correlation_id}")
    return decode(api.response, header.api_version, rest)
