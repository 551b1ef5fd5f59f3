"""System variables of an owner: which value holds where many clusters share one process (proposal, "System Variables").

Scopes "none" and "instance" are the process's, for all its owners alike. "session" is an owner's own, and begins with
the cluster's global value. What is "global" only is the cluster's, read from its store and kept as that changes; a
static field of the process would give an owner the value of another cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from immutables import Map

GLOBAL, SESSION, INSTANCE, NO_SCOPE = "global", "session", "instance", "none"


class Variable(NamedTuple):
    """A variable: where its value may be set, and the value without that."""

    scopes: frozenset[str]
    default: str


VARIABLES: Mapping[str, Variable] = MappingProxyType(
    {
        "tidb_ddl_reorg_batch_size": Variable(frozenset({GLOBAL}), "256"),
        "tidb_ddl_reorg_worker_cnt": Variable(frozenset({GLOBAL, SESSION}), "4"),
        "tidb_ddl_error_count_limit": Variable(frozenset({GLOBAL}), "512"),
        "tidb_enable_ddl": Variable(frozenset({INSTANCE}), "ON"),
        "version_comment": Variable(frozenset({NO_SCOPE}), "TiDB Server"),
    }
)
"""Those that matter to an owner."""

BATCH = "tidb_ddl_reorg_batch_size"


class Scopes(NamedTuple):
    """Values that are set: of the process, of the cluster, of the owner's session."""

    process: Map[str, str] = Map()
    cluster: Map[str, str] = Map()
    session: Map[str, str] = Map()


def value_of(name: str, scopes: Scopes) -> str:
    """Give the value that an owner works with."""
    variable = VARIABLES[name]
    if SESSION in variable.scopes and name in scopes.session:
        return scopes.session[name]
    if GLOBAL in variable.scopes:
        return scopes.cluster.get(name, variable.default)
    return scopes.process.get(name, variable.default)


def count_of(name: str, scopes: Scopes) -> int:
    """Give a variable that is a number above 0; one that is none counts as not set, lest a cluster stop its worker."""
    text = value_of(name, scopes)
    is_count = text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0
    return int(text if is_count else VARIABLES[name].default)
