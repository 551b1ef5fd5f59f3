"""Small clusters for tests of the whole simulator."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.recorded.records import Fields
from ticdc_lab.pd_core.regions import ROLES, Region, RegionColumns
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


def of_regions(regions: Sequence[Region]) -> RegionColumns:
    """Give regions as columns, in the order given."""
    width = max((len(r.peers) for r in regions), default=1) or 1
    stores = tuple(sorted({p.store for r in regions for p in r.peers} | {r.leader for r in regions if r.leader}))
    position = {s: i for i, s in enumerate(stores)}
    mask = np.array([[k < len(r.peers) for k in range(width)] for r in regions], dtype=np.bool_).reshape(-1, width)

    def slots(values: Iterable[object], fill: object, dtype: type) -> Any:
        filled: NDArray[Any] = np.full(mask.shape, fill, dtype=dtype)
        filled[mask] = list(values)
        return filled

    pairs = list(chain.from_iterable(((r, p) for p in r.peers) for r in regions))
    return RegionColumns(
        stores,
        np.array([r.id for r in regions], dtype=np.int64),
        np.array([position.get(r.leader, -1) for r in regions], dtype=np.int32),
        slots((position[p.store] for _, p in pairs), -1, np.int32),
        slots((p.id for _, p in pairs), 0, np.int64),
        slots((ROLES.index(p.role) for _, p in pairs), 0, np.int8),
        slots((p.witness for _, p in pairs), False, np.bool_),
        slots((p.store in r.down for r, p in pairs), False, np.bool_),
        slots((p.store in r.pending for r, p in pairs), False, np.bool_),
        np.array([r.down_seconds for r in regions], dtype=np.float64),
        np.array([r.size for r in regions], dtype=np.float64),
        np.array([r.keys for r in regions], dtype=np.int64),
        pa.chunked_array([pa.array([r.start_key for r in regions], pa.large_string())]),
        pa.chunked_array([pa.array([r.end_key for r in regions], pa.large_string())]),
    )
