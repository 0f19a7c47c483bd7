"""The base URLs of a service: which texts are ones. Nothing here connects."""

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from rallypoint.member.core.route import is_usable


def coordinator_urls(given: str | Sequence[str]) -> tuple[str, ...]:
    """The base URLs that the option `coordinator` names, each once, without a slash at their end.

    Args:
        given: A text with commas between the URLs, or a tuple or list with one URL in each item.

    Raises ValueError, which names the option and the URL that cannot be used.
    """
    urls = [url.strip(" ") for url in given.split(",")] if isinstance(given, str) else given
    if not isinstance(urls, tuple | list) or not all(isinstance(url, str) for url in urls):
        raise ValueError(f"coordinator: a URL, or several in a text with commas or in a tuple, not {given!r}")
    if not urls:
        raise ValueError("coordinator: name the URL of at least one node")
    for url in urls:
        _check_url(url)
    return tuple(dict.fromkeys(url.rstrip("/") for url in urls))


def _check_url(url: str) -> None:
    # There may be a password before the host, also one with a slash, or a token in the query.
    shown = re.sub(r"(?s)[?#].*", "?…", re.sub("(?s)//.*@", "//…@", url))
    if not is_usable(url):
        raise ValueError(f"coordinator: {shown!r} is not a URL like http://127.0.0.1:8000")
    if "," in url:
        raise ValueError(f"coordinator: {shown!r} is more than one URL; give each an item of its own")
    if "?" in url or "#" in url or "@" in urlsplit(url).netloc:
        raise ValueError(f"coordinator: {shown!r} must not hold a query, a fragment or a user name")
