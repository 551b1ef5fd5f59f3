"""Numbers of states of any immutable form: what differs by names of captures or by counters alone has one number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


class Structures:
    """Numbers of values of named tuples, dataclasses, maps, sets and atoms.

    Parameters
    ----------
    dropped
        (name of the class, field) that do not count: counters of messages on links that keep their order, and words.

    Notes
    -----
    Values that are shared between states are looked at once for each naming: numbers are kept by identity.
    """

    def __init__(self, dropped: frozenset[tuple[str, str]]) -> None:
        self._dropped = dropped
        self._fields: dict[type, tuple[str, ...] | None] = {}
        self._known: dict[tuple[int, tuple[str, ...]], tuple[Any, int]] = {}

    def part(self, value: Any, names: Mapping[str, int], order: tuple[str, ...]) -> int:
        """Give the number of a part of a state that other states share; ``order`` stands for ``names``."""
        known = self._known.get((id(value), order))
        if known is None or known[0] is not value:
            if len(self._known) > 1_000_000:
                self._known.clear()
            known = self._known[id(value), order] = (value, self.number(value, names))
        return known[1]

    def number(self, value: Any, names: Mapping[str, int]) -> int:
        """Give the number of a value; captures are called by their number in ``names``."""
        kind = type(value)
        if kind is int or kind is bool or value is None:
            return hash((kind.__name__, value))
        if kind is str:
            return hash(("capture", names[value])) if value in names else hash(value)
        own = self._fields[kind] if kind in self._fields else self._learned(kind, value)
        if own is not None:
            return hash((kind.__name__, *(self.number(getattr(value, field), names) for field in own)))
        if isinstance(value, tuple):
            return hash(tuple(self.number(one, names) for one in value))
        if isinstance(value, Mapping):
            pairs = ((self.number(key, names), self.number(one, names)) for key, one in value.items())
            return hash(("map", frozenset(pairs)))
        if isinstance(value, frozenset):
            return hash(("set", frozenset(self.number(one, names) for one in value)))
        raise TypeError(f"a state holds a {kind.__name__}, which has no number")

    def _learned(self, kind: type, value: Any) -> tuple[str, ...] | None:
        if is_dataclass(value):
            found: tuple[str, ...] | None = tuple(field.name for field in fields(value))
        else:
            found = getattr(kind, "_fields", None)
        if found is not None:
            found = tuple(field for field in found if (kind.__name__, field) not in self._dropped)
        self._fields[kind] = found
        return found
