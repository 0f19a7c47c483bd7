"""The service as an example sees it from outside: the line that names its URL, and two questions over HTTP."""

import re
import urllib.error
import urllib.request
from pathlib import Path

from rallypoint.protocol.admin_messages import DescribeAnswer
from rallypoint.protocol.operations import DESCRIBE, path_of

TIMEOUT_SECONDS = 5.0

_LISTENING = re.compile(r"^listening on (\S+)$", re.MULTILINE)

# The service is on this machine; a proxy that the environment names must not be asked for it.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def url_in(log: Path) -> str | None:
    """The URL that `rallypoint serve` has printed, None if it has not yet."""
    found = _LISTENING.search(log.read_text("utf-8", "replace"))
    return found[1] if found else None


def describe_group(url: str, group_id: str) -> DescribeAnswer | None:
    """Members, assignment and committed offsets; None if there is no such group yet. OSError if nobody answers."""
    try:
        with _opener.open(url + path_of(DESCRIBE, group_id=group_id), timeout=TIMEOUT_SECONDS) as answer:
            return DescribeAnswer.model_validate_json(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            if error.code == NOT_FOUND:
                return None
        raise


NOT_FOUND = 404
