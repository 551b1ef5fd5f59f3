"""Partitions whose broker does not answer, while others are read: since when, and in words."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from ticdc_lab.sources.kafka_reading import Place, Silence, at_ms
from ticdc_lab.words import are, some_of

SILENT_S = 30.0
"""A partition whose broker owes an answer for so long is reported, though others are read; one that was never read is
reported at once.
"""


class Silences:
    """What a watch knows of partitions whose broker does not answer.

    ``said``: takes a sentence when one more is silent, and when one is read again. ``answered_s``: when the broker of
    each partition answered last, seconds since 1970. ``now``: for a sentence, an empty tuple where none is silent.
    """

    def __init__(self, said: Callable[[str], None]) -> None:
        self._said = said
        self._silent: dict[Place, tuple[float, str]] = {}
        self.answered_s: dict[Place, float] = {}
        self.now: tuple[str, ...] = ()

    def note(self, found: Mapping[Place, Silence], read: Collection[Place], now_s: float) -> tuple[str, ...]:
        """Note what a source found; partitions in ``read`` have a position. Gives :attr:`now`."""
        self.answered_s |= {at: now_s - of.lasts_s for at, of in found.items()}
        before = self._silent
        silent = {at: of for at, of in found.items() if of.lasts_s > SILENT_S or at not in read}
        self._silent = {at: before.get(at, (self.answered_s[at], of.broker)) for at, of in silent.items()}
        begun = {at: of for at, of in self._silent.items() if at not in before}
        for sentence in (*_silent(begun), *_heard_again([at for at in before if at not in silent])):
            self._said(sentence)
        self.now = _silent(self._silent)
        return self.now


def _silent(since_s: Mapping[Place, tuple[float, str]]) -> tuple[str, ...]:
    """Partitions that no broker answers for, and what to do, a sentence for each topic and broker."""
    by_broker = dict[tuple[str, str], list[Place]]()
    for at, (_, broker) in sorted(since_s.items()):
        by_broker.setdefault((at[0], broker), []).append(at)
    said = []
    for (topic, broker), own in by_broker.items():
        since = at_ms(round(1000 * min(since_s[at][0] for at in own)))
        why = f"broker {broker} does not answer" if broker else "no broker is the leader"
        said.append(
            f"{_partitions(own)} not read since {since}, because {why}. Other partitions are read. Check that broker, "
            f"and who leads: kafka-topics.sh --bootstrap-server HOST:PORT --describe --topic {shlex.quote(topic)}"
        )
    return tuple(said)


def _heard_again(places: Iterable[Place]) -> Iterator[str]:
    for _, own in groupby(sorted(places), itemgetter(0)):
        yield f"{_partitions([*own])} read again."


def _partitions(places: Sequence[Place]) -> str:
    """Some partitions of one topic as the subject of a sentence."""
    numbers = some_of([str(partition) for _, partition in places])
    noun = "Partition" if len(places) == 1 else "Partitions"
    return f"{noun} {numbers} of {places[0][0]} {are(len(places))}"
