"""The answer to "why" that comes with every decision: candidates, what rejected each, scores compared, limits hit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ticdc_lab.pd_core.operators import Operator


class Rejected(NamedTuple):
    """A store that a filter refused: ``role`` is source or target, ``why`` is PD's reason in words."""

    store: int
    role: str
    filter: str
    why: str


class Compared(NamedTuple):
    """Two scores of one comparison; ``held`` when the source's is higher, so that the move pays."""

    what: str
    source: int
    target: int
    source_score: float
    target_score: float
    held: bool


class Scored(NamedTuple):
    """A store's value in a choice of one among many: ``chosen`` where it was kept."""

    what: str
    store: int
    score: float
    chosen: bool


HALTED = "halt-scheduling is true: no checker and no scheduler has rounds"


@dataclass(frozen=True, slots=True)
class Explained:
    """A decision and its reasons."""

    # Every operator that PD may answer with, the one we take first; several where PD breaks a tie by chance. Empty:
    # nothing is done.
    operators: tuple[Operator, ...]
    because: str  # one sentence: what decided
    candidates: tuple[int, ...] = ()  # stores that were looked at
    rejected: tuple[Rejected, ...] = ()  # the filter that refused each of those that were refused
    scored: tuple[Scored, ...] = ()  # what the stores that were left were chosen by, choice after choice
    compared: tuple[Compared, ...] = ()  # pairs of scores that were compared to see whether a move pays, in order
    limit: str = ""  # the limit that was hit, "" for none

    @property
    def operator(self) -> Operator | None:
        """The operator that is taken, None where nothing is done."""
        return self.operators[0] if self.operators else None


@dataclass(slots=True)
class Notes:
    """Collects reasons while a decision is made, so that nothing is computed twice to explain it."""

    candidates: list[int] = field(default_factory=list)
    rejected: dict[Rejected, None] = field(default_factory=dict)
    scored: list[Scored] = field(default_factory=list)
    compared: dict[Compared, None] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    limit: str = ""

    def look_at(self, store_ids: list[int]) -> None:
        self.candidates.extend(i for i in store_ids if i not in self.candidates)

    def reject(self, store: int, role: str, name: str, why: str) -> None:
        self.rejected[Rejected(store, role, name, why)] = None

    def explained(self, operators: tuple[Operator, ...], because: str = "") -> Explained:
        """Close the notes with the decision; without a sentence the last note is the reason."""
        why = because or (self.said[-1] if self.said else "nothing to do")
        found = tuple(self.candidates), tuple(self.rejected), tuple(self.scored), tuple(self.compared)
        return Explained(operators, why, *found, self.limit)
