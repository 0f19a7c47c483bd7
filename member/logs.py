"""The log of members and consumers as JSON, one object a line, for programs that want it; nothing is set up unasked.

Lines of `rallypoint.member` carry what they are about as fields of their own: `group_id`, `client_id`, `member_id`,
`generation_id`; a change of state `state` and `state_before`; the work on a partition `topic` and `partition`. The
shape is that of the service's own log, which has no such fields. The two packages have none in common that could hold
a formatter.
"""

import json
import logging
from datetime import UTC, datetime

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """`time`, `level`, `logger`, `message`, every field given as `extra`, and `exception` if there is one.

    Works for any logger, so a program's own lines may take the same form. What has no JSON form is written as text.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        instant = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        values: dict[str, object] = {
            "time": instant.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        values |= {name: value for name, value in vars(record).items() if name not in _PLAIN and name not in values}
        if record.exc_info:
            values["exception"] = self.formatException(record.exc_info)
        return json.dumps(values, ensure_ascii=False, default=str)
