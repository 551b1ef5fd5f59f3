"""Clusters to try out: reference cases of the real PD and scenarios, with other words or policies from a moment on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ticdc_lab.pd_core.recorded.records import Fields, records_of
from ticdc_lab.simulate.pd.world.changes import ClusterChange, Pdctl, Timed, UsePolicy
from ticdc_lab.simulate.pd.world.model import MODEL
from ticdc_lab.simulate.pd.world.pd_policies import DEFAULT_POLICIES
from ticdc_lab.simulate.pd.world.policy import Policy
from ticdc_lab.simulate.pd.world.recording import Recording
from ticdc_lab.simulate.pd.world.reference import Case, case_of
from ticdc_lab.simulate.pd.world.run import Watch, simulate
from ticdc_lab.simulate.pd.world.scenario import changes_of, start_of
from ticdc_lab.simulate.pd.world.start import SECOND_US
from ticdc_lab.simulate.scenario import Scenario, read_scenario
from ticdc_lab.simulate.trace import NOTHING

_FEW_REGIONS = 20_000
_SAMPLES = 120


class RealRun(NamedTuple):
    """A run of the real PD: moments (s) with the peers and the leaders of each store.

    ``gone`` are the stores that did not take part any more at the end.
    """

    times_s: tuple[float, ...]
    peers: tuple[Mapping[int, int], ...]
    leaders: tuple[Mapping[int, int], ...]
    gone: tuple[int, ...] = ()


def reference_cases(path: Path | str) -> dict[str, Case]:
    """Read the cases of a file of reference runs, by name.

    ``path``: ``data/pd_reference.jsonl.gz`` or a file of the same form (golden/pd/reference.jsonl.gz).
    """
    return {r["case"]: case_of(Fields(r, r["case"])) for r in records_of(path) if r.get("kind") == "case"}


def scenario_cases(folder: Path | str) -> dict[str, Case]:
    """Read the scenarios of PD in a folder as cases, by name.

    ``folder``: ``data/scenarios/pd``, or one with files of the same form.
    """
    read = (read_scenario(path) for path in sorted(Path(folder).glob("*.yaml")))
    return {s.name: _case_of(s) for s in read if s.model is MODEL}


def _case_of(scenario: Scenario) -> Case:
    until_us = scenario.until_us
    return Case(scenario.name, start_of(scenario), changes_of(scenario), 0, until_us, until_us)


def real_runs(path: Path | str, case: str) -> list[RealRun]:
    """Give what the real PD did in a case, a run a repetition."""
    found = []
    for r in records_of(path):
        if r.get("kind") == "run" and r["case"] == case:
            rows = r["series"]
            peers, leaders = (tuple({int(i): n for i, n in row[k].items()} for row in rows) for k in (2, 3))
            live = {int(i) for i in r["final"]["live_stores"]}
            gone = tuple(sorted({i for counts in peers for i in counts} - live))
            found.append(RealRun(tuple(row[0] / 10 for row in rows), peers, leaders, gone))
    return found


def tried(
    case: Case, *, seed: int = 1, changes: Sequence[Timed] = (), policies: Sequence[Policy] = DEFAULT_POLICIES,
    until_s: float | None = None, samples: int = _SAMPLES,
) -> Recording:  # fmt: skip
    """Run a case and record it.

    ``case``: what to run. ``seed``: the only source of chance: two runs that differ from a moment on are the same up to
    there. ``changes``: what happens besides the case's own events, see :func:`said`. ``policies``: schedulers.
    ``until_s``: virtual seconds; by default as long as the case lasts at most. ``samples``: moments looked at, evenly
    over the run; fewer of a cluster of more than 20,000 regions.
    """
    until_us = case.most_us if until_s is None else round(until_s * SECOND_US)
    many = len(case.start.regions.id) > _FEW_REGIONS
    every_us = max(case.start.settings.tick_us, until_us // max(1, samples // 4 if many else samples))
    run = simulate(
        case.start, until_us, seed=seed, changes=(*case.changes, *changes), policies=policies,
        watch=Watch(sample_us=every_us, placement_us=None, level=NOTHING, monitor=False, pictured=True),
    )  # fmt: skip
    return run.recorder.recording


def said(words: str | Sequence[str], *, at_s: float) -> tuple[Timed, ...]:
    """Give words to PD at a moment.

    ``words``: commands as after ``pd-ctl``, a line each; empty lines and those that begin with ``#`` are left out.
    ``at_s``: virtual seconds.
    """
    lines = words.splitlines() if isinstance(words, str) else list(words)
    kept = [line.strip().removeprefix("pd-ctl ").strip() for line in lines]
    return changes_at(at_s, *(Pdctl(line) for line in kept if line and not line.startswith("#")))


def changes_at(at_s: float, *changes: ClusterChange | Policy) -> tuple[Timed, ...]:
    """Give changes, or policies to use, at a moment (s)."""
    at_us = round(at_s * SECOND_US)
    return tuple(Timed(at_us, UsePolicy(c) if isinstance(c, Policy) else c) for c in changes)
