"""Avro schemas by their id: from a file, or from a registry that speaks Confluent's HTTP."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ticdc_lab.codecs.event import Malformed
from ticdc_lab.codecs.known import Known
from ticdc_lab.errors import NoAnswerError, SourceError
from ticdc_lab.errors.redaction import without_secrets

TIMEOUT_S = 5
_AGAIN, _PAUSE_S = 3, 0.5
_BUSY = (429, 500, 502, 503, 504)


def read_schemas(path: str) -> dict[str, str]:
    """Schemas of a file by their id; as of :func:`read_registered`."""
    return read_registered(path)[0]


def read_registered(path: str) -> tuple[dict[str, str], dict[str, frozenset[str]]]:
    """Schemas of a file by their id, and the subjects of those whose subject it names.

    ``path``: JSON, plain or gzip: objects with ``id`` (a number, or Glue's UUID) and ``schema`` (JSON text), and with
    ``subject`` if it is known; one a line, behind each other or in a list. So registries answer (``/schemas``,
    ``/subjects/NAME/versions/N``), Glue (``get-schema-version``), and so is a dump of the topic ``_schemas``. Raises
    SourceError: the file cannot be read, or has something else.
    """
    try:
        with gzip.open(path, "rb") if path.endswith(".gz") else Path(path).open("rb") as file:
            raw = file.read()
    except (OSError, EOFError, zlib.error) as fault:
        words = getattr(fault, "strerror", None) or str(fault) or "it ends in the middle"
        raise SourceError(f"The schemas of {path} cannot be read: {words}.") from fault
    found: dict[str, str] = {}
    subjects: dict[str, frozenset[str]] = {}
    at, text = 0, raw.decode(errors="surrogateescape")
    try:
        while (at := _BETWEEN.match(text, at).end()) < len(text):  # type: ignore[union-attr]  # it matches nothing too
            value, end = _JSON.raw_decode(text, at)
            for entry in _registered(value):
                schema_id, subject = str(entry["id"]), entry.get("subject")
                found[schema_id] = _text(entry["schema"])
                if subject is not None:
                    subjects[schema_id] = subjects.get(schema_id, frozenset()) | {str(subject)}
            at = end
        if not found:
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError) as fault:
        line = text.count("\n", 0, at) + 1
        said = text[at : at + 60].encode(errors="surrogateescape").decode(errors="replace")
        raise SourceError(
            f"{path}: line {line}: expected an object with id and schema; found {said!r}.",
            hint="Save what the registry gives: curl http://HOST:8081/schemas > schemas.json",
        ) from fault
    return found, subjects


_JSON = json.JSONDecoder()
_BETWEEN = re.compile(r"(?:[\s,]|null\b|(?:CreateTime|LogAppendTime|Partition|Offset):-?\d+)*")
"""What stands between the objects of a file, as kafka-console-consumer prints it of the topic ``_schemas``."""
_RECORDS = frozenset({"keytype", "compatibilityLevel", "mode"})
"""Fields of that topic's keys, and of values that are no schema."""


def _registered(value: Any) -> Iterator[dict[str, Any]]:
    """The schemas in a value; a message is looked into. :class:`KeyError` where it is something else."""
    if isinstance(value, list):
        if not value:
            raise ValueError
        for member in value:
            yield from _registered(member)
    elif not isinstance(value, dict):
        raise TypeError
    elif "schema" in value and "id" in value:
        yield value
    elif "SchemaDefinition" in value:  # of Glue
        yield {"id": value["SchemaVersionId"], "schema": value["SchemaDefinition"]}
    elif (name := next((n for n in ("payload", "value") if n in value), None)) is not None:
        inside = value[name]
        if inside:  # null deletes
            yield from _registered(_JSON.decode(inside) if isinstance(inside, str) else inside)
    elif not _RECORDS & value.keys() and value.keys() - {"deleted", "magic"} != {"subject", "version"}:
        raise KeyError


class Registry:
    """Known schemas, then the registry's; a worker requests each once.

    If ``known.schemas`` is a dictionary, it gets what was asked for: a later registry knows it.
    """

    def __init__(self, known: Known) -> None:
        self._schemas = known.schemas if isinstance(known.schemas, dict) else dict(known.schemas)
        self._url = known.registry_url.rstrip("/")
        self._shown = without_secrets(self._url)
        self._subjects = known.subjects
        self._faults: dict[str, Malformed] = {}

    def schema(self, schema_id: str) -> str:
        """The schema; :class:`Malformed` where it is unknown, NoAnswerError where the registry does not answer."""
        if schema_id in self._schemas:
            return self._schemas[schema_id]
        fault = self._faults.get(schema_id) or self._fetch(schema_id)
        if fault is not None:
            raise fault
        return self._schemas[schema_id]

    def subjects(self, schema_id: str) -> frozenset[str]:
        """Under which subjects the schema is registered; none where neither file nor registry names them."""
        if schema_id in self._subjects or not self._url:
            return self._subjects.get(schema_id, frozenset())
        with suppress(_requests().RequestException, OSError, ValueError, KeyError, TypeError):
            answer = self._get(f"/schemas/ids/{schema_id}/versions")  # registries before 5.5 do not have it
            if answer.ok:
                return frozenset(str(version["subject"]) for version in answer.json())
        return frozenset()

    def is_of_keys(self, schema_id: str) -> bool | None:
        """Whether a schema is one of keys: by its subjects, its name, or its columns; None where nothing shows it.

        A key of TiCDC has no extension (``_tidb_op``) and no column that may be null, and fewer fields than all values
        of its table, also than those before a DDL that added columns.
        """
        subjects = self.subjects(schema_id)
        if any(subject.endswith("-value") for subject in subjects):
            return False
        if subjects and all(subject.endswith("-key") for subject in subjects):
            return True
        try:
            name, fields, is_debezium, may_be_null = _described(self.schema(schema_id))
        except Malformed:
            return False  # so nothing is decoded by it
        if is_debezium or "_tidb_op" in fields or may_be_null:
            return is_debezium and name.endswith("Key")
        others = [found[1] for text in self._schemas.values() if (found := _described(text))[0] == name]
        if any(other < fields for other in others):
            return False
        return True if any(fields < other for other in others) else None

    def _fetch(self, schema_id: str) -> Malformed | None:
        """Ask for a schema, again where the registry does not answer; that it does not is no fault of a message."""
        if not self._url:
            return self._unknown(schema_id, f"schema {schema_id} is not among the {len(self._schemas)} known schemas")
        try:
            answer = self._get(f"/schemas/ids/{schema_id}")
            if answer.status_code == _requests().codes.not_found:
                return self._unknown(schema_id, f"{self._shown} knows no schema {schema_id}")
            if not answer.ok:
                raise self._silent(schema_id, f"HTTP status {answer.status_code}")
            self._schemas[schema_id] = _text(answer.json()["schema"])
        except (_requests().RequestException, OSError, ValueError, KeyError, TypeError, RecursionError) as fault:
            raise self._silent(schema_id, type(fault).__name__) from None
        return None

    def _get(self, path: str) -> Any:
        """The registry's answer, asked for again where it does not come."""
        from requests.adapters import HTTPAdapter
        from urllib3.util.retry import Retry

        retry = Retry(total=_AGAIN, backoff_factor=_PAUSE_S, status_forcelist=_BUSY)
        with _requests().Session() as session:
            for scheme in ("http://", "https://"):  # the longest name that fits counts
                session.mount(scheme, HTTPAdapter(max_retries=retry))
            return session.get(f"{self._url}{path}", timeout=TIMEOUT_S)

    def _unknown(self, schema_id: str, said: str) -> Malformed:
        self._faults[schema_id] = Malformed("schema-unknown", said)
        return self._faults[schema_id]

    def _silent(self, schema_id: str, said: str) -> NoAnswerError:
        return NoAnswerError(
            f"The schema registry {self._shown} does not answer: it gave no schema {schema_id}, asked {_AGAIN + 1} "
            f"times: {said}.",
            hint="Load again when it answers, or name a file of its schemas with --schema-registry.",
        )


def _described(schema: str) -> tuple[str, frozenset[str], bool, bool]:
    """Name, fields, whether debezium made it, and whether a field may be null; nothing for what is no record."""
    try:
        told = json.loads(schema)
        types = {field["name"]: field["type"] for field in told["fields"]}
        name = f"{told.get('namespace', '')}.{told['name']}"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "", frozenset(), False, False
    return name, frozenset(types), "connect.name" in told, any(isinstance(of, list) for of in types.values())


def _requests() -> Any:
    import requests  # a tenth of a second, spent only for a registry

    return requests


def _text(schema: Any) -> str:
    """A schema as JSON text, which registries give as a string."""
    if not isinstance(schema, str | dict):
        raise TypeError(f"a schema is JSON text, not a {type(schema).__name__}")
    return schema if isinstance(schema, str) else json.dumps(schema)


def require_url(url: str) -> str:
    """The URL of a registry, or :class:`SourceError` where it is none.

    Raises SourceError: it is not http or https, or names no host.
    """
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:  # a bad port is a ValueError
            return url
    except ValueError:
        pass
    raise SourceError(
        f"{without_secrets(url)} is no URL of a schema registry; expected http://HOST:PORT or https://...",
        hint="Name a file of schemas by its path: --option schema-registry=FILE",
    )
