"""The sentences that assertions about the pipeline are made of, beside all of the table scheduler.

True or false of a moment::

    everything is downstream            resolved_ts is held by transaction
    the final state is right            checkpoint_ts is held by sink
    sums are right                      nothing holds checkpoint_ts

``everything is downstream``: clients are done, and all they committed is there, DDLs too. ``the final state is right``
(rows replaced) and ``sums are right`` (differences added up) are known at the end of a run: say them with `eventually`.
Kinds of holders are those of :data:`ticdc_lab.simulate.pipeline.why.KINDS`, a hyphen for the space.

Numbers and durations::

    rows committed     rows delivered   rows repeated      rows owed     rows lost     rows regressed
    rows in memory     rows on disk     resolved_ts lag    DDLs executed
    rows executed      rows not executed                   consumer lag
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ticdc_lab.errors import ScenarioError
from ticdc_lab.machines.clock import us_of
from ticdc_lab.simulate.pipeline.capture.facts import capture_facts
from ticdc_lab.simulate.pipeline.capture.state import DataState
from ticdc_lab.simulate.pipeline.consumer import CONSUMER
from ticdc_lab.simulate.pipeline.consumer import resolved_ts as read_upto
from ticdc_lab.simulate.pipeline.consumer_monitor import ConsumerMonitor
from ticdc_lab.simulate.pipeline.facts import PipelineFacts
from ticdc_lab.simulate.pipeline.why import KINDS
from ticdc_lab.simulate.reading import Names
from ticdc_lab.simulate.scenario_yaml import Value
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD
from ticdc_lab.simulate.scheduler.vocabulary import VOCABULARY
from ticdc_lab.simulate.sentences import COMPARED, Comparison, Measure, Said, read_limit, words_of

_HELD = re.compile(r"(resolved_ts|checkpoint_ts) is held by (\S+)")
_FREE = re.compile(r"nothing holds (resolved_ts|checkpoint_ts)")
_WORDS = tuple(kind.replace(" ", "-") for kind in KINDS)


@dataclass(frozen=True, slots=True)
class OfScheduler:
    """A sentence or measure of the table scheduler, about a run of the pipeline."""

    claim: Any

    @property
    def text(self) -> str:
        """The sentence."""
        return str(self.claim.text)

    @property
    def ages(self) -> bool:
        """As it says."""
        return bool(self.claim.ages)

    @property
    def unit(self) -> str:
        """Of a measure."""
        return str(getattr(self.claim, "unit", ""))

    def value(self, facts: PipelineFacts, at_us: int) -> Any:
        """Give its truth or number."""
        return self.claim.value(facts.scheduler, at_us)

    def why(self, facts: PipelineFacts, at_us: int) -> str:
        """Say what is there."""
        return str(self.claim.why(facts.scheduler, at_us))


def claim(value: Value, names: Names, invariants: Collection[str]) -> Said | Comparison | OfScheduler:
    """Read a sentence that is true or false."""
    text = words_of(value)
    if text in _SENTENCES:
        return _SENTENCES[text](text)
    if match := _HELD.fullmatch(text):
        watermark, kind = match[1], match[2]
        if kind not in _WORDS:
            raise value.wrong("a kind of holder", found=kind, hint=f"Known are: {', '.join(_WORDS)}.")
        return _held(text, watermark, kind)
    if match := _FREE.fullmatch(text):
        return _held(text, match[1], None)
    if (match := COMPARED.fullmatch(text)) and match[1] in _MEASURES:
        own = _MEASURES[match[1]](match[1])
        return Comparison(text, own, match[2], read_limit(value, own, match[3]))
    if text in _MEASURES:
        raise value.wrong("a sentence", hint=f"{text} is measured: compare it, as in `{text} <= 10`; a lag with `2s`.")
    return OfScheduler(_known(value, lambda: VOCABULARY.claim(value, names, invariants)))


def measure(value: Value, names: Names) -> Measure | OfScheduler:
    """Read what is counted or measured."""
    text = words_of(value)
    if text in _MEASURES:
        return _MEASURES[text](text)
    return OfScheduler(_known(value, lambda: VOCABULARY.measure(value, names)))


def _known(value: Value, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except ScenarioError as error:
        own = "; ".join([*_SENTENCES, *_MEASURES, "WATERMARK is held by KIND", "nothing holds WATERMARK"])
        raise ScenarioError(str(error.message), hint=f"{error.hint} Of the pipeline also: {own}.") from error


def _held(text: str, watermark: str, kind: str | None) -> Said:
    def test(facts: Any, at_us: int) -> bool:
        holders = _of(facts).held(watermark, at_us).holders
        return bool(holders) and holders[0].kind.replace(" ", "-") == kind if kind else not holders

    return Said(text, test, lambda f, t: _of(f).held(watermark, t).text, ages=True, live=True)


def _everything(facts: Any, at_us: int) -> bool:
    return bool(facts.load_is_done and not facts.n_owed and not facts.monitor.jobs)


def _owed(facts: Any, at_us: int) -> str:
    done = "clients are done" if facts.load_is_done else "clients are not done"
    return f"{done}; {facts.n_owed} rows and {len(facts.monitor.jobs)} DDLs are not downstream"


def _ended(facts: Any, at_us: int) -> str:
    return "it is known at the end only" if facts.ended is None else str(facts.ended)


def _rows(facts: Any, what: str) -> int:
    kernel = facts.kernel
    live = [s for a, s in kernel.states.items() if a not in kernel.down and isinstance(s, DataState)]
    return sum(getattr(t, what) for s in live for t in capture_facts(s).tables)


def _consumed(facts: Any) -> ConsumerMonitor:
    """Give what watches the consumer; one that watches none where the run has none."""
    return _monitor(facts).consumer or ConsumerMonitor(None)


def _consumer_lag_us(facts: Any, at_us: int) -> int:
    """How long ago the lowest watermark was that the consumer has read."""
    state = facts.kernel.states.get(CONSUMER)
    return max(0, at_us - us_of(read_upto(state))) if state is not None and read_upto(state) else at_us


def _lag_us(facts: Any, at_us: int) -> int:
    ts = facts.kernel.states[facts.kernel.address[ETCD]].resolved_ts
    return max(0, at_us - us_of(ts))


_SENTENCES: Mapping[str, Callable[[str], Said]] = {
    "everything is downstream": lambda text: Said(text, _everything, _owed, ages=True, live=True),
    "the final state is right": lambda text: Said(
        text, lambda f, t: bool(_at_end(f, "final_right_idempotent")), _ended, at_end=True
    ),
    "sums are right": lambda text: Said(text, lambda f, t: bool(_at_end(f, "final_right_blind")), _ended, at_end=True),
}

_MEASURES: Mapping[str, Callable[[str], Measure]] = {
    "rows committed": lambda text: Measure(text, lambda f, t: _monitor(f).measures.committed, ages=True, live=True),
    "rows delivered": lambda text: Measure(text, lambda f, t: _monitor(f).measures.delivered, ages=True, live=True),
    "rows repeated": lambda text: Measure(text, lambda f, t: _monitor(f).measures.repeated, ages=True, live=True),
    "DDLs executed": lambda text: Measure(text, lambda f, t: _monitor(f).measures.ddls, ages=True, live=True),
    "rows owed": lambda text: Measure(text, lambda f, t: int(_of(f).n_owed), ages=True, live=True),
    "rows lost": lambda text: Measure(text, lambda f, t: _at_end(f, "lost")),
    "rows regressed": lambda text: Measure(text, lambda f, t: _at_end(f, "regressed")),
    "rows in memory": lambda text: Measure(text, lambda f, t: _rows(f, "sorting"), ages=True, live=True),
    "rows on disk": lambda text: Measure(text, lambda f, t: _rows(f, "spilled"), ages=True, live=True),
    "rows executed": lambda text: Measure(text, lambda f, t: _consumed(f).n_executed, ages=True, live=True),
    "rows not executed": lambda text: Measure(
        text, lambda f, t: sum(map(len, _consumed(f).owed.values())), ages=True, live=True
    ),
    "consumer lag": lambda text: Measure(text, _consumer_lag_us, "us", ages=True, live=True),
    "resolved_ts lag": lambda text: Measure(text, _lag_us, "us", ages=True, live=True),
}


def _of(facts: Any) -> PipelineFacts:
    assert isinstance(facts, PipelineFacts)
    return facts


def _monitor(facts: Any) -> Any:
    return _of(facts).monitor


def _at_end(facts: Any, what: str) -> int:
    ended = _of(facts).ended
    return int(getattr(ended, what)) if ended else 0
