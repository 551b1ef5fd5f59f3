"""Small clusters for tests of the whole simulator."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from ticdc_lab.simulate.pd.config import Config
from ticdc_lab.simulate.pd.replay.records import Fields
from ticdc_lab.simulate.pd.world.start import SECOND_US, Start, StoreStart, WorldSettings, spread_regions

REFERENCE = Path(__file__).parents[3] / "data" / "pd_reference.jsonl.gz"
S = SECOND_US


@cache
def reference_records() -> tuple[Fields, ...]:
    """All records of the reference file."""
    with gzip.open(REFERENCE, "rt") as file:
        return tuple(Fields(json.loads(line), "record") for line in file)


def small(
    regions: int = 60, stores: int = 4, on: tuple[int, ...] = (), limit: float = 600, config: Config | None = None,
    size: float = 96.0,
    **settings: Any,
) -> Start:  # fmt: skip
    """A cluster whose regions go round some of its stores."""
    ids = on or tuple(range(1, stores + 1))
    return Start(
        stores=tuple(StoreStart(i) for i in range(1, stores + 1)), regions=spread_regions(regions, ids, size=size),
        config=config or Config(), settings=WorldSettings(store_limit=(limit, limit), **settings),
    )  # fmt: skip
