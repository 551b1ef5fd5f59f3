"""System variables of an owner: which value holds where many clusters share one process (proposal, "System Variables").

"session" is an owner's own, and begins with the cluster's global value. What is "global" only is the cluster's, read
from its store and kept as that changes; a static field of the process would give an owner the value of another cluster.
"instance" and "none" are of the process: all owners in it have the same value, for all clusters. "none" can
not be set at all. ``tidb_enable_ddl`` is a tidb-server's own (:class:`.EnableDdl`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from immutables import Map

GLOBAL, SESSION, INSTANCE, NONE = "global", "session", "instance", "none"


class Variable(NamedTuple):
    """A variable: where its value may be set, and the value without that."""

    scopes: frozenset[str]
    default: str


BATCH, WORKERS, MOST_ERRORS = (
    "tidb_ddl_reorg_batch_size", "tidb_ddl_reorg_worker_cnt", "tidb_ddl_error_count_limit",
)  # fmt: skip
"""What an owner works with: rows of a batch, workers that share it, and after how many errors a job is taken back."""

SLOW_MS, VERSION = "ddl_slow_threshold", "version"
"""Of the process: above how many ms an owner names a job that has ended as slow; and which jobs its code can run."""

VARIABLES: Mapping[str, Variable] = MappingProxyType(
    {
        BATCH: Variable(frozenset({GLOBAL}), "256"),
        WORKERS: Variable(frozenset({GLOBAL, SESSION}), "4"),
        MOST_ERRORS: Variable(frozenset({GLOBAL}), "512"),
        "tidb_enable_ddl": Variable(frozenset({INSTANCE}), "ON"),
        SLOW_MS: Variable(frozenset({INSTANCE}), "300"),
        VERSION: Variable(frozenset({NONE}), ""),
    }
)
"""Those that matter to an owner."""

COUNTS = (BATCH, WORKERS, MOST_ERRORS)
"""Those whose values are numbers above 0."""


class Scopes(NamedTuple):
    """Values that are set: of the process, of the cluster, of the owner's session."""

    process: Map[str, str] = Map()
    cluster: Map[str, str] = Map()
    session: Map[str, str] = Map()


def value_of(name: str, scopes: Scopes) -> str:
    """Give the value that an owner works with."""
    variable = VARIABLES[name]
    if variable.scopes & {INSTANCE, NONE}:
        return scopes.process.get(name, variable.default)
    if SESSION in variable.scopes and name in scopes.session:
        return scopes.session[name]
    return scopes.cluster.get(name, variable.default)


def count_of(name: str, scopes: Scopes) -> int:
    """Give a variable that is a number above 0; one that is none counts as not set, lest a cluster stop its worker."""
    text = value_of(name, scopes)
    return int(text if _is_count(text) else VARIABLES[name].default)


def inherited(cluster: Map[str, str]) -> Map[str, str]:
    """Give the variables of a session that begins now: it has the global values, and hears of no later ones."""
    own = (name for name, variable in VARIABLES.items() if SESSION in variable.scopes)
    return Map({name: value_of(name, Scopes(cluster=cluster)) for name in own})


def refusal(name: str, value: str) -> str:
    """Why ``set global`` does not take a variable or its value; empty if it does."""
    known = VARIABLES.get(name)
    if known is None:
        return f"there is no variable {name}"
    if GLOBAL not in known.scopes:
        return f"{name} is of scope {' and '.join(sorted(known.scopes))}, and cannot be set for a cluster"
    return "" if _is_count(value) else f"{name} is a number above 0, and {value!r} is none"


def instance_refusal(name: str, value: str) -> str:
    """Why an instance does not take a variable or its value; empty if it does."""
    if name != SLOW_MS:
        scopes = sorted(VARIABLES[name].scopes) if name in VARIABLES else []
        return f"{name} is of scope {' and '.join(scopes)}" if scopes else f"there is no variable {name}"
    return "" if _is_count(value) else f"{name} is a number above 0, and {value!r} is none"


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0
