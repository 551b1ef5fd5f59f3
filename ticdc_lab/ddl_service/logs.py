"""Lines of a worker's log: for people, or as JSON for what collects logs."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import IO, Any

import msgspec

TEXT, JSON = "text", "json"
_FIELDS = "fields"
LOG = logging.getLogger("ticdc_lab.ddl_service")


def begin(form: str, node: str, stream: IO[str] = sys.stderr) -> None:
    """Write what is worth knowing to a stream, one line each."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(node) if form == JSON else logging.Formatter("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def fields(**values: Any) -> dict[str, dict[str, Any]]:
    """Give a line's fields besides its sentence, as ``extra`` of a call of a logger."""
    return {_FIELDS: values}


class JsonLines(logging.Formatter):
    """One JSON object a line: when, how bad, which worker, the sentence, and what it is made from, by name."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """Give the line; a traceback is one of its fields."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
        found = {"at": at, "level": record.levelname.lower(), "node": self._node, "message": record.getMessage()}
        found |= getattr(record, _FIELDS, {})
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(found, enc_hook=str).decode()
