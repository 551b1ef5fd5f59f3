"""A DDL service to try out, with faults on buttons; and the same pictures of one that really runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import ipywidgets as widgets
import plotly.graph_objects as go
import pyarrow as pa

from ticdc_lab import figures
from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.figures.theme import label, sentence
from ticdc_lab.simulate.ddl_service.fleet import Fleet, fleet_in
from ticdc_lab.simulate.ddl_service.tryout import Incident
from ticdc_lab.widgets.composed import Player
from ticdc_lab.widgets.incidents import Incidents
from ticdc_lab.widgets.panel import Panel

STEPS = 100
"""The last step of the player, which is the end of the run."""


class Ran(Protocol):
    """A run, as :class:`ticdc_lab.simulate.ddl_service.run.Run` is."""

    @property
    def trace(self) -> pa.Table:
        """:data:`ticdc_lab.simulate.trace.TRACE`."""
        ...

    def again(self, at_us: int, faults: Sequence[Any]) -> Ran:
        """Run once more with other faults from a moment on."""
        ...


@dataclass(frozen=True, slots=True)
class DdlServiceView:
    """What the panel shows.

    Workers and clusters, how long one tidb-server of the first cluster takes to load a schema (ms), the seed, the
    faults that were injected (name, worker, moment in s), the picture, and the player's step, 0 to :data:`STEPS`.
    """

    workers: int
    clusters: int
    load_ms: int
    seed: int
    faults: tuple[tuple[str, str, float], ...]
    picture: str
    step: int


@dataclass(frozen=True, slots=True)
class ServiceView:
    """What the panel of a running service shows: the picture; ``tick`` is how often it has looked."""

    picture: str
    tick: int


Simulate = Callable[[int, int, int, int], Ran]
"""Workers, clusters, load time of a server (ms) and seed to a run."""

Plan = Callable[[Sequence[Incident], int, int], Sequence[Any]]
"""Incidents, workers and clusters to faults."""


def ddl_service_panel(
    simulate: Simulate, *, faults: Sequence[str], plan: Plan, until_s: float = 20.0, most_workers: int = 8,
    most_clusters: int = 40,
) -> Panel[DdlServiceView]:  # fmt: skip
    """Build a panel; each change of the service runs the model again, the first fault's moment is where it differs.

    Parameters
    ----------
    simulate
        See :data:`Simulate`; called once for each choice.
    faults
        Names on the buttons.
    plan
        See :data:`Plan`.
    until_s
        How long the runs are, virtual seconds.
    most_workers, most_clusters
        Ends of the sliders.
    """
    names = [f"ddl-service-node-{i + 1}" for i in range(most_workers)]
    controls = {
        "workers": _slider(3, 1, most_workers, "workers"),
        "clusters": _slider(6, 1, most_clusters, "clusters"),
        "load_ms": _slider(20, 20, 3000, "slow load, ms"),
        "seed": widgets.BoundedIntText(value=0, min=0, max=1 << 31, description="seed"),
        "faults": Incidents(faults, names, until_s=until_s),
        "picture": widgets.Dropdown(options=list(_PICTURES), description="picture"),
        "step": Player(STEPS),
    }

    @lru_cache(maxsize=8)
    def undisturbed(workers: int, clusters: int, load_ms: int, seed: int) -> Ran:
        return simulate(workers, clusters, load_ms, seed)

    @lru_cache(maxsize=8)
    def traced(size: tuple[int, int, int, int], chosen: tuple[tuple[str, str, float], ...]) -> pa.Table:
        run, workers = undisturbed(*size), size[0]
        known = set(names[:workers])
        incidents = [Incident(f, w if w in known else names[0], round(1e6 * at_s)) for f, w, at_s in chosen]
        if not incidents:
            return run.trace
        return run.again(min(i.at_us for i in incidents), plan(incidents, *size[:2])).trace

    def draw(view: DdlServiceView) -> go.Figure:
        trace = traced((view.workers, view.clusters, view.load_ms, view.seed), view.faults)
        return _PICTURES[view.picture](trace, round(1e6 * until_s * view.step / STEPS) if view.step else None)

    return Panel(DdlServiceView, controls=controls, draw=draw)


_PICTURES: Mapping[str, Callable[[pa.Table, int | None], go.Figure]] = {
    "assignment over time": lambda trace, at_us: figures.assignment_gantt(fleet_in(trace)),
    "fleet map": lambda trace, at_us: figures.fleet_map(fleet_in(trace), at_us=at_us),
    "the index job": lambda trace, at_us: figures.schema_timeline(trace, job=1),
    "the column job": lambda trace, at_us: figures.schema_timeline(trace, job=2),
}


def service_panel(look: Callable[[], Fleet], *, interval_ms: int = 1000) -> Panel[ServiceView]:
    """Build a panel of a service that really runs: it looks at each tick while it plays.

    Parameters
    ----------
    look
        Asks the service once more and gives the fleet since the first time
        (:meth:`ticdc_lab.ddl_service.watch.Watch.look`). An error of this package is shown in words.
    interval_ms
        Between two looks.
    """
    controls = {
        "picture": widgets.Dropdown(options=list(_LIVE), description="picture"),
        "tick": widgets.Play(value=0, min=0, max=1 << 30, step=1, interval=interval_ms),
    }

    def draw(view: ServiceView) -> go.Figure:
        try:
            return _LIVE[view.picture](look())
        except TiCDCLabError as error:
            return sentence("The service does not answer", label(error, most=400))

    return Panel(ServiceView, controls=controls, draw=draw)


_LIVE: Mapping[str, Callable[[Fleet], go.Figure]] = {
    "fleet map": figures.fleet_map,
    "assignment over time": figures.assignment_gantt,
}


def _slider(value: int, least: int, most: int, description: str) -> widgets.IntSlider:
    return widgets.IntSlider(value=value, min=least, max=most, description=description, continuous_update=False)
