"""Names of captures, workers, clusters and labels of stores that are HTML are text in every picture of a simulator."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hostile import EVIL, elements
from pd_recordings import joining
from scheduler_traces import ten_steps, troubles
from test_ddl_service_figures import trace

from ticdc_lab import figures
from ticdc_lab.ddl_core.fleet import fleet_in
from ticdc_lab.figures.figure import Figure
from ticdc_lab.pd_core.config import Config
from ticdc_lab.simulate.pd.looking.tryout import tried
from ticdc_lab.simulate.pd.world.start import REFERENCE, Start, StoreStart, spread_regions

NOT_DRAWN = (".layout.meta.selects", ".data.meta.selects", ".data.ids", ".data.parents")
"""What a click selects, and by what boxes of a tree find each other."""

OF_FLEETS = ("fleet_map", "fleet_map_stepped", "assignment_gantt")


def texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a figure, and where it stands."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from texts(part, path if isinstance(value, list) else f"{path}.{name}")
    if isinstance(value, str):
        yield path, value


def assert_text(fig: Figure) -> None:
    """The name is there, and nothing of it is an element."""
    shown = list(texts(json.loads(fig.to_json())))
    assert any("img src" in text for _, text in shown)
    assert [(path, text) for path, text in shown if not path.startswith(NOT_DRAWN) and elements(text)] == []


def renamed(of: pa.Table, name: str) -> pa.Table:
    """A trace in which an actor has another name."""
    columns = [pc.replace_substring(c, name, EVIL) if pa.types.is_string(c.type) else c for c in of.columns]
    return pa.table(dict(zip(of.column_names, columns, strict=True)))


@pytest.mark.parametrize("made", [ten_steps, troubles])
@pytest.mark.parametrize(
    "name", ["grafana_panels", "ownership_gantt", "scheduling_stepped", "sequence_diagram", "watermark_curves"]
)
def test_captures(made: Callable[[], pa.Table], name: str) -> None:
    """What is drawn of a run of the scheduler, or of the pipeline, which has the same pictures."""
    assert_text(getattr(figures, name)(renamed(made(), "capture-1")))


def test_what_holds_a_checkpoint() -> None:
    """The same."""
    assert_text(figures.why_stuck(renamed(troubles(), "capture-1")))


@pytest.mark.parametrize("name", ["assignment_gantt", "fleet_map", "sequence_diagram"])
@pytest.mark.parametrize("who", ["node-1", "cluster1"])
def test_workers_and_clusters(name: str, who: str) -> None:
    """Of DDL as a Service."""
    of = renamed(trace("worker-crash"), who)
    assert_text(getattr(figures, name)(fleet_in(of) if name in OF_FLEETS else of))


def test_labels_of_stores() -> None:
    """The brackets over the map of regions, and the boxes of places."""
    stores = tuple(StoreStart(i, labels={"zone": EVIL if i % 2 else "z"}) for i in range(1, 5))
    config = Config(location_labels=("zone",))
    start = Start(stores=stores, regions=spread_regions(20, range(1, 5)), config=config, settings=REFERENCE)
    of = type(joining())("hostile", start, (), 0, 1_000_000, 1_000_000)
    sample = tried(of, until_s=0.1, samples=1).samples[0]
    assert_text(figures.region_map(sample))
    assert_text(figures.label_topology(sample))
