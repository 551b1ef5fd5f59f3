"""Moments of a run: everything that can be seen of its states, now and then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from ticdc_lab.errors import ContractError
from ticdc_lab.simulate.kernel import Kernel
from ticdc_lab.simulate.pipeline.observed import Moment, moment_of
from ticdc_lab.simulate.pipeline.settings import PipelineSettings
from ticdc_lab.simulate.pipeline.why import CURRENT_US, RESOLVED, Why, why
from ticdc_lab.simulate.reading import shown
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD
from ticdc_lab.simulate.trace import Row


class Sampled(Protocol):
    """A run that was kept with ``sample_us``: of the pipeline, or of one changefeed among several."""

    @property
    def settings(self) -> PipelineSettings: ...

    @property
    def kernel(self) -> Kernel: ...

    @property
    def snapshots(self) -> list[tuple[int, dict[str, Any]]]:
        """Give the states of all live nodes, now and then."""
        ...


def moments(run: Sampled, *, until_us: int | None = None) -> list[Moment]:
    """Give the moments of a run that was kept with ``sample_us``, up to ``until_us``."""
    nodes = (*run.settings.stores(), *run.settings.scheduler.nodes(), ETCD)
    pauses = _pauses(run.kernel.recorder.rows)
    found: list[Moment] = []
    etcd = None
    for at_us, states in run.snapshots:
        if until_us is not None and at_us > until_us:
            break
        etcd = states.get(ETCD, etcd)
        asleep = {node for node, since_us, end_us in pauses if since_us <= at_us < end_us}
        found.append(moment_of(at_us, states, nodes, asleep, etcd))
    return found


def current_us_of(settings: PipelineSettings) -> int:
    """Give how far behind the watermarks of a healthy run may be: each level reports now and then."""
    scheduler = settings.scheduler
    return max(CURRENT_US, settings.tikv.resolved_us + 3 * (scheduler.tick_us + scheduler.poll_us))


def why_at(run: Sampled, *, at_us: int, watermark: str = RESOLVED, current_us: int | None = None) -> Why:
    """Find what holds a global watermark of a run at the last sample up to ``at_us`` (:func:`.why.why`).

    ``current_us`` is :func:`current_us_of` the settings if left out.

    Raises
    ------
    ContractError
        The run was made without ``sample_us``, or has no sample as early.
    """
    seen = moments(run, until_us=at_us)
    if not seen:
        known = run.snapshots
        raise ContractError(
            f"Nothing is known of the run at {shown(at_us)}: "
            + (f"its first sample is at {shown(known[0][0])}." if known else "it was made without sample_us."),
            hint="Give a later `at_us`." if known else "Give `sample_us`, how often its states are to be kept.",
        )
    current_us = current_us_of(run.settings) if current_us is None else current_us
    return why(seen, watermark=watermark, rule=run.settings.capture.rule, current_us=current_us)


def _pauses(rows: Iterable[Row]) -> list[tuple[str, int, int]]:
    """(address, since, until) of each pause."""
    open_us: dict[str, int] = {}
    found: list[tuple[str, int, int]] = []
    for row in rows:
        if row.kind == "paused":
            open_us.setdefault(row.node, row.time_us)
        elif row.kind in ("resumed", "crashed") and row.node in open_us:
            found.append((row.node, open_us.pop(row.node), row.time_us))
    return found + [(node, since_us, 1 << 62) for node, since_us in sorted(open_us.items())]
