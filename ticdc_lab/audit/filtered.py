"""What a changefeed leaves out on purpose: its event filters, as its file or the caller gives them.

A change that a filter leaves out looks like a lost one. The log does not show which changes an expression takes,
so where a filter may leave out what a finding misses, the finding is not made and the table is named as not judged. The
same holds of DDL that are left out: the definition of their table is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ticdc_lab.facts.definitions import table_text
from ticdc_lab.settings import Settings
from ticdc_lab.settings.matchers import TableFilter, accepted

OPS = ("delete", "update", "insert")
"""In the order of their bits."""

_DDL = "DDL"
_EXPRESSIONS: Mapping[str, tuple[str, ...]] = {
    "ignore-insert-value-expr": ("insert",),
    "ignore-update-new-value-expr": ("update",),
    "ignore-update-old-value-expr": ("update",),
    "ignore-update-only-columns": ("update",),
    "ignore-delete-value-expr": ("delete",),
    "ignore-sql": (_DDL,),
}
"""Keys of a filter by which it leaves out some changes of an operation, or DDL."""

Table = tuple[str, str]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Which operations a changefeed leaves out of each table."""

    known: bool  # whether the filters of the changefeed are known: without them, one may leave out anything
    whole: tuple[str, ...] = ()  # settings by which changes of any table may be absent
    filters: tuple[tuple[TableFilter, frozenset[str]], ...] = ()  # tables and operations of each event filter

    @classmethod
    def read(cls, settings: Settings) -> Self:
        """From what is known of the changefeed."""
        given = [s for s in settings.known if s.source == "file" or s.name.startswith("filter.")]
        whole = [n for n in ("bdr-mode", "filter.ignore-txn-start-ts") if settings.value(n)]
        filters = settings.value("filter.event-filters", ())
        exact = bool(settings.value("case-sensitive", False))
        each = [(takes, _operations(f)) for f, takes, _ in accepted(filters, case_sensitive=exact)]
        return cls(bool(given), tuple(whole), tuple(f for f in each if f[1]))

    def of(self, table: Table) -> frozenset[str]:
        """The operations whose changes may be absent for a table, and whether DDL may."""
        found: set[str] = {*OPS} if self.whole else set()
        for takes, operations in self.filters:
            if takes.matches(*table):
                found |= operations
        return frozenset(found)

    def bits(self, tables: Sequence[Table]) -> list[int]:
        """The same as a bit for each of :data:`OPS`."""
        of = {t: sum(1 << i for i, op in enumerate(OPS) if op in self.of(t)) for t in {*tables}}
        return [of[t] for t in tables]

    def reason(self, tables: Sequence[Table]) -> str:
        """Why changes of these tables are not judged; empty where none is left out."""
        if self.whole:
            return f"the changefeed's {' and '.join(self.whole)} may leave out any change"
        of = {table_text(*t): self.of(t) & {*OPS} for t in sorted({*tables})}
        said = [f"{' and '.join(o for o in OPS if o in ops)} of {name}" for name, ops in of.items() if ops]
        return f"the changefeed's event filters leave out {', '.join(said)}" if said else ""

    def undefined(self, tables: Sequence[Table]) -> list[Table]:
        """Tables whose DDL may be absent."""
        return [t for t in tables if _DDL in self.of(t)]


def _operations(of_filter: Mapping[str, Any]) -> frozenset[str]:
    ignored = {*of_filter.get("ignore-event", ())}
    found = set(OPS) if "all dml" in ignored else ignored & set(OPS)
    found |= {_DDL} if ignored - {"all dml", *OPS} else set()
    for key, operations in _EXPRESSIONS.items():
        found |= {*operations} if of_filter.get(key) else set()
    return frozenset(found)
