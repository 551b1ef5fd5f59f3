"""A connection to a MySQL-compatible server, whose password is never shown."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import unquote, urlsplit

import pymysql
from pymysql.connections import Connection

from ticdc_lab.errors import SourceError
from ticdc_lab.errors.redaction import HIDDEN

PASSWORD, OPTION_FILE = "MYSQL_PWD", "MYSQL_OPTION_FILE"
"""Environment variables: the password, or an option file with ``[client]`` and ``password = ..`` in it."""

LENIENT = "ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION"
"""For DDL, which succeeded upstream: what no longer fits a modified column is clipped, as there without strict mode."""

STRICT = f"STRICT_ALL_TABLES,{LENIENT}"
"""For rows: a value that does not fit is an error."""

_SETTINGS = (
    f"SET SESSION sql_mode = '{STRICT}', time_zone = '+00:00', foreign_key_checks = 0, "
    "character_set_server = 'utf8mb4', collation_server = 'utf8mb4_bin'"  # TiDB's own for new databases
)


_LOST = frozenset((0, 1053, 1077, 1079, 1317, 1927, 2006, 2013, 2055, 4031))
"""Codes of client and servers for a connection that is gone: cut, killed, or its server shut down."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is; ``database`` is the one that the consumer keeps its own tables in."""

    user: str
    host: str
    port: int
    database: str = "_ticdc_lab"
    password: str = field(default="", repr=False)
    option_file: str = ""

    @property
    def name(self) -> str:
        """The address for people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mysql://{self.user}@{host}:{self.port}/{self.database}"

    @property
    def lock(self) -> str:
        """The lock of the server that one consumer of the database has; MySQL allows 64 characters, also to a name."""
        return f"ticdc_lab.{sha256(self.database.encode()).hexdigest()[:32]}"


def address_of(url: str) -> Address:
    """Read ``mysql://USER@HOST:PORT[/DATABASE]``; the password comes from the environment.

    Raises SourceError: the URL contains a password, is none, or has no user or host.
    """
    expected = "Expected mysql://USER@HOST:PORT[/DATABASE] with a user, a host and a port from 1 to 65535."
    try:
        parts = urlsplit(url)
        port = 3306 if parts.port is None else parts.port
    except ValueError:
        raise SourceError(expected) from None  # whose words may have the password
    if parts.password is not None:
        raise SourceError(
            "The target's URL contains a password, which the list of processes shows to everybody.",
            hint=f"Put it into the environment variable {PASSWORD}, or name an option file in {OPTION_FILE}.",
        )
    if not parts.username or not parts.hostname or not port:
        raise SourceError(expected)
    return Address(
        unquote(parts.username),
        parts.hostname,
        port,
        parts.path.strip("/") or "_ticdc_lab",
        os.environ.get(PASSWORD, ""),
        os.environ.get(OPTION_FILE, ""),
    )


def connected(address: Address) -> Connection:
    """Connect, with settings under which texts of events come back as they went.

    Raises SourceError: the server refuses, or is not there.
    """
    extra: dict[str, Any] = {"password": address.password}
    if address.option_file:
        extra = {"read_default_file": address.option_file}
    try:
        db: Connection = pymysql.connect(
            host=address.host, port=address.port, user=address.user, charset="utf8mb4", autocommit=False,
            connect_timeout=10, **extra,
        )  # fmt: skip
        with db.cursor() as cursor:
            cursor.execute(_SETTINGS)
    except (pymysql.Error, OSError) as e:
        said = str(e).replace(address.password, HIDDEN) if address.password else str(e)
        raise SourceError(
            f"{address.name} cannot be connected to: {said}",
            hint=f"Try it by hand: mysql -h {shlex.quote(address.host)} -P {address.port} "
            f"-u {shlex.quote(address.user)} -p. {PASSWORD} gives the password, or the file that {OPTION_FILE} names.",
        ) from None
    return db


@contextmanager
def connection_said(name: str) -> Iterator[None]:
    """What a statement fails with as the connection is gone becomes a :class:`SourceError`."""
    try:
        yield
    except (pymysql.OperationalError, pymysql.InterfaceError) as e:
        code = e.args[0] if e.args else 0
        if code not in _LOST:
            raise
        raise SourceError(
            f"The connection to {name} is gone ({e.args[-1] or 'it was closed'}).",
            hint="Committed batches stay, others are rolled back. Run the same `ticdc-lab consume` again when "
            "the server is "
            "back: it resumes from the position in the target.",
        ) from None
