"""The sentences of assertions: what is true or has a value at a moment, and how a text is read as one."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from immutables import Map

from ticdc_lab.simulate.reading import Names, Value, duration_us, shown

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, "=": operator.eq, ">=": operator.ge, ">": operator.gt,
}  # fmt: skip

Words = Mapping[str, str]
"""What the groups of a pattern matched."""
NO_WORDS: Words = Map()


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence of the vocabulary: of a moment's facts, the words that a file has in it, and the moment.

    ``live``: it reads the world as it is now, not the rows of the trace; ``at_end``: it is of a whole run.
    """

    test: Callable[[Any, Words, int], bool]
    tell: Callable[[Any, Words, int], str]
    ages: bool = False
    live: bool = False
    at_end: bool = False
    text: str = ""
    words: Words = NO_WORDS

    def value(self, facts: Any, at_us: int) -> bool:
        return self.test(facts, self.words, at_us)

    def why(self, facts: Any, at_us: int) -> str:
        return self.tell(facts, self.words, at_us)


@dataclass(frozen=True, slots=True)
class Measure:
    """A number or a duration of the vocabulary; ``unit`` is ``us`` for a duration, ``live`` as of :class:`Said`."""

    read: Callable[[Any, Words, int], int | Fraction]
    unit: str = ""
    ages: bool = False
    live: bool = False
    text: str = ""
    words: Words = NO_WORDS

    def value(self, facts: Any, at_us: int) -> Any:
        return self.read(facts, self.words, at_us)

    def why(self, facts: Any, at_us: int) -> str:
        return f"{self.text} is {self.shown(self.value(facts, at_us))}"

    def shown(self, value: Any) -> str:
        """Give a value as people read it."""
        return shown(int(value)) if self.unit == "us" else f"{float(value):g}" if self.unit == "share" else str(value)


@dataclass(frozen=True, slots=True)
class Comparison:
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

    def value(self, facts: Any, at_us: int) -> bool:
        return OPERATORS[self.sign](self.measure.value(facts, at_us), self.limit)

    def why(self, facts: Any, at_us: int) -> str:
        return self.measure.why(facts, at_us)


COMPARED = re.compile(r"(.+?)\s*(<=|>=|<|=|>)\s*(\S+)")

_MOST_NAMED = 40


def broken(facts: Any) -> str:
    """List the violated invariants, of facts that count them by name."""
    return f"{', '.join(sorted(facts.broken))} is violated" if facts.broken else "no invariant is violated"


OF_INVARIANTS: Mapping[str, Said] = {
    "no violation": Said(lambda f, w, t: not f.broken, lambda f, w, t: broken(f)),
    r"(?P<invariant>.+) is violated": Said(lambda f, w, t: w["invariant"] in f.broken, lambda f, w, t: broken(f)),
}
"""Sentences of every model in the kernel; they stand last, for the second one takes any words."""

OF_MESSAGES: Mapping[str, Measure] = {
    "messages": Measure(lambda f, w, t: f.n_sent, ages=True),
    "ignored messages": Measure(lambda f, w, t: f.other["ignored"], ages=True),
    "lost messages": Measure(lambda f, w, t: f.other["lost"], ages=True),
    "resent messages": Measure(lambda f, w, t: f.other["resent"], ages=True),
    "refused messages": Measure(lambda f, w, t: f.other["refused"], ages=True),
    r"(?P<message>\w+) messages": Measure(lambda f, w, t: f.sent[w["message"]], ages=True),
    "violations": Measure(lambda f, w, t: sum(f.broken.values())),
}
"""Measures of every model that counts messages by name."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The vocabulary of assertions about a model."""

    # Pattern to what it means, tried in this order; a group's name is what must be there.
    sentences: Mapping[str, Said]
    measures: Mapping[str, Measure]
    # What there is, by the name of a group; groups it does not name are not checked.
    there: Callable[[Names, Collection[str]], Mapping[str, Collection[str]]]

    def claim(self, value: Value, names: Names, invariants: Collection[str]) -> Said | Comparison:
        """Read a sentence that is true or false."""
        text = words_of(value)
        if compared := COMPARED.fullmatch(text):
            measured, sign, limit = compared.groups()
            found = self.measure(value, names, measured)
            if found.unit != "us" and not re.fullmatch(r"\d+(\.\d+)?", limit):
                raise value.wrong(f"a number beside {found.text}", found=limit)
            number = duration_us(limit) if found.unit == "us" else Fraction(limit)
            if number is None:
                hint = "Write it as `200ms` or `5s`."
                raise value.wrong(f"a duration beside {found.text}", found=limit, hint=hint)
            return Comparison(text, found, sign, number)
        for pattern, said in self.sentences.items():
            if match := re.fullmatch(pattern, text):
                return replace(said, text=text, words=self._checked(value, match.groupdict(), names, invariants))
        hint = f"{text} is measured: compare it, as in `{text} <= 10`; a lag with `2s`."
        measured = any(re.fullmatch(pattern, text) for pattern in self.measures)
        raise value.wrong("a sentence of the vocabulary", hint=hint if measured else self._known())

    def measure(self, value: Value, names: Names, text: str | None = None) -> Measure:
        """Read what is counted or measured."""
        text = words_of(value) if text is None else text
        for pattern, measure in self.measures.items():
            if match := re.fullmatch(pattern, text):
                return replace(measure, text=text, words=self._checked(value, match.groupdict(), names, ()))
        raise value.wrong("something that can be measured", found=text, hint=self._known())

    def _checked(self, value: Value, found: Words, names: Names, invariants: Collection[str]) -> Words:
        there = self.there(names, invariants)
        for what, name in found.items():
            if what in there and name not in there[what]:
                known = sorted(there[what])
                hint = f"There is {', '.join(known)}." if len(known) <= _MOST_NAMED else "See `cluster`."
                raise value.wrong(f"the name of one {what} that is there", found=name, hint=hint)
        return found

    def _known(self) -> str:
        said = [re.sub(r"\(\?P<(\w+)>[^)]*\)", lambda m: m[1].upper(), p) for p in (*self.sentences, *self.measures)]
        return f"Known are: {'; '.join(said)}."


def words_of(value: Value) -> str:
    """Give a sentence with one space between its words."""
    return " ".join(value.text().split())
