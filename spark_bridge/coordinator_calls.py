"""Single requests to the coordinator, by whoever is no member of the group: synchronous, and not repeated."""

import json
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from spark_bridge.errors import BridgeError

REQUEST_SECONDS = 5.0
REDIRECTS_MAX = 3


class NotAnswered(BridgeError):  # noqa: N818
    """The service did not do what it was asked. `final`: it never will, for want of a right or because it disagrees."""

    def __init__(self, detail: str, *, final: bool) -> None:
        self.final = final
        super().__init__(detail)


class Coordinators:
    """The nodes of a service, asked in turn until one answers."""

    def __init__(self, urls: tuple[str, ...], token: str | None) -> None:
        self._urls = urls
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of the answer. `path` begins with a slash. Raises `NotAnswered`, with what the last node said."""
        failure = NotAnswered("no coordinator is named", final=True)
        data = None if body is None else json.dumps(body).encode()
        for base in self._urls:
            try:
                return json.loads(self._ask(method, base.rstrip("/") + path, data))
            except NotAnswered as error:
                failure = error
            except ValueError:
                failure = NotAnswered(f"{base}: the answer is not JSON", final=False)
        raise failure

    def _ask(self, method: str, url: str, data: bytes | None) -> bytes:
        for _ in range(REDIRECTS_MAX + 1):
            try:
                with urlopen(Request(url, data, self._headers, method=method), timeout=REQUEST_SECONDS) as answer:
                    text: bytes = answer.read()
                    return text
            except HTTPError as error:
                with error:
                    target = error.headers.get("Location")
                    if error.code != 421 or target is None or urlsplit(target).scheme != urlsplit(url).scheme:
                        raise NotAnswered(f"{url}: {_detail(error)}", final=400 <= error.code < 500) from error
                    url = target
            except (URLError, TimeoutError, OSError) as error:
                raise NotAnswered(f"{url}: {error}", final=False) from error
        raise NotAnswered(f"{url}: nodes point at each other", final=False)


def _detail(error: HTTPError) -> str:
    """The sentence of a problem document, or the bare status where the answer is none."""
    try:
        return f"HTTP {error.code}: {json.loads(error.read())['detail']}"
    except (ValueError, KeyError, TypeError):
        return f"HTTP {error.code}"
