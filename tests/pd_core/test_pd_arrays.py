"""Columns give the numbers that stores give one by one."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.scores import columns, leader_score, leader_scores, region_score, region_scores
from ticdc_lab.pd_core.stores import GIB, Store

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "pd" / "oracle.jsonl.gz"


def scored() -> list[dict[str, float]]:
    """The score records of the oracle."""
    with gzip.open(GOLDEN) as f:
        return [r for r in map(json.loads, f) if r["kind"] == "store_score"]


def test_all_scores_of_the_oracle_come_from_columns_too() -> None:
    """Both formulas, to 1e-9, for all stores of one pair of ratios at once."""
    records = scored()
    stores = [
        Store(i, capacity=r["capacity_bytes"], available=r["available_bytes"], used=r["used_bytes"],
              region_size=r["region_size_mib"], leader_count=r["leader_count"], leader_weight=r["weight"],
              region_weight=r["weight"])
        for i, r in enumerate(records)
    ]  # fmt: skip
    delta = np.array([r["delta_mib"] for r in records], dtype=float)
    ratios = {(r["high_space_ratio"], r["low_space_ratio"]) for r in records}
    for high, low in ratios:
        of = [i for i, r in enumerate(records) if (r["high_space_ratio"], r["low_space_ratio"]) == (high, low)]
        for version in ("v1", "v2"):
            config = Config(region_score_formula_version=version, high_space_ratio=high, low_space_ratio=low)
            found = region_scores(columns(stores), config, delta)
            told = [records[i][f"region_score_{version}"] for i in of]
            assert found[of] == pytest.approx(told, rel=1e-9)
            assert found == pytest.approx(
                [region_score(s, config, d) for s, d in zip(stores, delta, strict=True)], rel=1e-12
            )
    assert leader_scores(columns(stores)) == pytest.approx([leader_score(s) for s in stores])


def test_stores_without_capacity_regions_or_use_divide_by_nothing() -> None:
    """Edges that no record has."""
    stores = [Store(1, capacity=0, available=0), Store(2, region_size=0, used=0), Store(3, used=GIB, region_size=0)]
    for version in ("v1", "v2"):
        config = Config(region_score_formula_version=version)
        with np.errstate(all="raise"):
            found = region_scores(columns(stores), config)
        assert found == pytest.approx([region_score(s, config) for s in stores])


def test_a_thousand_stores_are_scored_with_as_many_calls_as_two() -> None:
    """What a round of balance costs: nothing is done store by store."""

    def calls(n: int) -> int:
        made: list[str] = []
        c = columns(Store(i, used=i * GIB, available=(n - i) * GIB, region_size=i * 1024) for i in range(n))
        sys.setprofile(lambda frame, event, arg: made.append(event))
        try:
            region_scores(c, Config())
        finally:
            sys.setprofile(None)
        return len(made)

    assert calls(2) == calls(1_000)
