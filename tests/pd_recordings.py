"""Small runs of clusters for the tests of pictures, panels and estimates; each is made once."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from ticdc_lab.pd_core.config import Config
from ticdc_lab.simulate.pd.looking.tryout import reference_cases, said, tried
from ticdc_lab.simulate.pd.world.recording import Recording
from ticdc_lab.simulate.pd.world.reference import Case
from ticdc_lab.simulate.pd.world.start import REFERENCE, Start, StoreStart, regions_of, spread_regions

REFERENCE_FILE = Path(__file__).resolve().parent.parent / "data" / "pd_reference.jsonl.gz"

FAST = replace(REFERENCE, store_limit=(2000.0, 2000.0))


@cache
def case(name: str) -> Case:
    """A reference case."""
    return reference_cases(REFERENCE_FILE)[name]


@cache
def joined(words: str = "", at_s: float = 0.0, until_s: float = 8.0) -> Recording:
    """60 regions on stores 1 to 3, stores 4 and 5 are empty; words to PD at a moment."""
    return tried(joining(), changes=said(words, at_s=at_s), until_s=until_s, samples=16)


def joining() -> Case:
    """60 regions on three stores in three zones, and two more stores that are empty."""
    stores = tuple(StoreStart(i, labels={"zone": f"z{(i - 1) % 3 + 1}", "host": f"h{i}"}) for i in range(1, 6))
    config = Config(location_labels=("zone", "host"), max_store_down_time_s=30.0)
    start = Start(stores=stores, regions=spread_regions(60, [1, 2, 3]), config=config, settings=FAST)
    return Case("joining", start, (), 0, 8_000_000, 8_000_000)


def nothing() -> Case:
    """Three stores that are even: PD has nothing to do."""
    start = Start(
        stores=tuple(StoreStart(i) for i in (1, 2, 3)), regions=regions_of([[1, 2, 3]] * 6, [1, 2, 3, 1, 2, 3]),
        settings=REFERENCE,
    )  # fmt: skip
    return Case("nothing", start, (), 0, 4_000_000, 4_000_000)
