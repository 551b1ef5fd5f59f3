"""Where regions begin and end at first, and which stores hold them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ticdc_lab.simulate.pipeline.keys import FIRST, LAST, META, key_of
from ticdc_lab.simulate.pipeline.kv_messages import Region
from ticdc_lab.simulate.pipeline.settings import TikvSettings

PD = "pd"


def initial_regions(settings: TikvSettings, table_ids: Iterable[int] = (), handles: int = 1000) -> tuple[Region, ...]:
    """Divide the whole key space: one region for DDL jobs, ``regions_per_table`` for each table.

    Parameters
    ----------
    settings
        Says how many regions a table has and how many stores there are.
    table_ids
        Tables that have regions of their own. The last region of a table goes on to the next table of these (the very
        last one to the end), so what is created between them later lives there.
    handles
        Tables are divided evenly among handles 0 .. ``handles`` - 1; higher ones are in the last region.

    Returns
    -------
    tuple[Region, ...]
        In key order, with ids from 1 on and epoch 1; the leaders are taken from the stores in turn.
    """
    starts = [FIRST]
    for table_id in sorted(set(table_ids) - {META}):
        parts = settings.regions_per_table
        starts += sorted({key_of(table_id, handles * part // parts) for part in range(parts)})
    return tuple(
        Region(i + 1, start, end, 1, f"tikv-{i % settings.stores + 1}")
        for i, (start, end) in enumerate(zip(starts, [*starts[1:], LAST], strict=True))
    )


def peers_of(region: Region, settings: TikvSettings, stores: Sequence[str]) -> tuple[str, ...]:
    """Give the stores that hold a region at first: its leader and those after it."""
    first = stores.index(region.leader)
    return tuple(stores[(first + i) % len(stores)] for i in range(min(settings.replicas, len(stores))))
