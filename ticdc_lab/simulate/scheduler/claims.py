"""What a sentence about a run is: something true or false of a moment, or a number beside a limit."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ticdc_lab.simulate.durations import shown
from ticdc_lab.simulate.scheduler.facts import Facts

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, "=": operator.eq, ">=": operator.ge, ">": operator.gt,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence of the vocabulary; ``live``: it reads the world as it is now, not what rows of the trace told."""

    text: str
    test: Callable[[Facts, int], bool]
    tell: Callable[[Facts, int], str]
    ages: bool = False
    live: bool = False

    def value(self, facts: Facts, at_us: int) -> bool:
        """Give its truth at a moment."""
        return self.test(facts, at_us)

    def why(self, facts: Facts, at_us: int) -> str:
        """Say what is there."""
        return self.tell(facts, at_us)


@dataclass(frozen=True, slots=True)
class Measure:
    """A number or a duration of the vocabulary; ``unit`` is ``us`` for a duration, ``live`` as of :class:`Said`."""

    text: str
    read: Callable[[Facts, int], int | Fraction]
    unit: str = ""
    ages: bool = False
    live: bool = False

    def value(self, facts: Facts, at_us: int) -> Any:
        """Give it at a moment."""
        return self.read(facts, at_us)

    def why(self, facts: Facts, at_us: int) -> str:
        """Say how much it is."""
        return f"{self.text} is {self.shown(self.read(facts, at_us))}"

    def shown(self, value: Any) -> str:
        """Give a value as people read it."""
        return shown(int(value)) if self.unit == "us" else f"{float(value):g}" if self.unit == "share" else str(value)


@dataclass(frozen=True, slots=True)
class Compared:
    """A measure beside a limit."""

    text: str
    measure: Measure
    sign: str
    limit: int | Fraction

    @property
    def ages(self) -> bool:
        """As its measure."""
        return self.measure.ages

    @property
    def live(self) -> bool:
        """As its measure."""
        return self.measure.live

    def value(self, facts: Facts, at_us: int) -> bool:
        """Give its truth at a moment."""
        return OPERATORS[self.sign](self.measure.value(facts, at_us), self.limit)

    def why(self, facts: Facts, at_us: int) -> str:
        """Say how much the measure is."""
        return self.measure.why(facts, at_us)
