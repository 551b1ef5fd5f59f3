"""The what-if: measuring every dispatcher at 1 to 128 partitions once, and answering from it.

    python benchmarks/what_if.py --events 1000000 [--rounds 3] [--json out.json]

*sweep* is one ``WhatIf.from_events`` over the materialised log: balance by rows and bytes over time, row order, table
order and transactions, and conflict detection. Its peers count the balance alone, of one dispatcher, at the same 128
partition counts, with their own hash (they have no crc32): DuckDB and polars over the same Parquet. *redraw* is the
panel's time for a changed control, over every strategy, picture and partition count of the list.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import duckdb
import polars as pl

from ticdc_lab.dispatch.whatif import WhatIf
from ticdc_lab.engine.sessions import session
from ticdc_lab.facts.catalog import catalog_of
from ticdc_lab.sources.load import load
from ticdc_lab.widgets import what_if_panel

HERE = Path(__file__).parent
PARTITIONS = (1, 3, 4, 8, 16, 31, 64, 128)


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--protocol", default="open-protocol")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    asked = parser.parse_args()
    source = HERE / "out" / f"{asked.protocol}_{asked.events}.parquet"
    spark = session("spark", cores=2)
    with tempfile.TemporaryDirectory(dir=HERE / "out") as folder:
        begin = time.perf_counter()
        log = load(spark, str(source), protocol=asked.protocol).materialise(f"{folder}/decoded")
        took: dict[str, list[float]] = {"decoding into Parquet": [time.perf_counter() - begin]}
        catalog = catalog_of(log.events)
        files = f"{folder}/decoded/**/*.parquet"
        what_if = WhatIf.from_events(log.events, catalog)  # compiles, and warms Spark
        for _ in range(asked.rounds):
            begin = time.perf_counter()
            what_if = WhatIf.from_events(log.events, catalog)
            took.setdefault("sweep", []).append(time.perf_counter() - begin)
            took.setdefault("DuckDB, balance of one hash", []).append(by_duckdb(files))
            took.setdefault("polars, balance of one hash", []).append(by_polars(files))
        each = redraws(what_if)
        took |= {f"redraw: {picture}": times for picture, times in each.items()}
        took["redraw"] = [t for times in each.values() for t in times]
    medians = {name: statistics.median(times) for name, times in took.items()}
    p95 = statistics.quantiles(took["redraw"], n=20)[-1]
    rows = int(sum(lane.changes.sum() for lane in what_if.lanes.values()))
    found = {
        "rows": rows,
        "median_s": medians,
        "redraw_p95_s": p95,
        "redraws": len(took["redraw"]),
        "load": os.getloadavg(),
    }
    for name, seconds in medians.items():
        print(f"{name:32} {seconds:8.3f} s")
    print(f"{'redraw, 95th percentile':32} {p95:8.3f} s of {len(took['redraw'])}")
    print(f"{rows:,} row changes; load average {os.getloadavg()[0]:.1f}")
    if asked.json:
        Path(asked.json).write_text(json.dumps(found, indent=1), encoding="utf-8")


def by_duckdb(files: str) -> float:
    """Seconds for the rows of every partition at 1 to 128 partitions."""
    begin = time.perf_counter()
    duckdb.sql(
        "SELECT n, h % n AS p, count(*) FROM (SELECT hash(key_hash) AS h FROM read_parquet('" + files + "') "
        "WHERE kind = 'row'), range(1, 129) AS r(n) GROUP BY ALL"
    ).fetchall()
    return time.perf_counter() - begin


def by_polars(files: str) -> float:
    """The same, one partition count after the other, over hashes held in memory."""
    begin = time.perf_counter()
    rows = pl.scan_parquet(files).filter(pl.col("kind") == "row").select(h=pl.col("key_hash").hash()).collect()
    for n in range(1, 129):
        rows.group_by(pl.col("h") % n).len()
    return time.perf_counter() - begin


def redraws(what_if: WhatIf) -> dict[str, list[float]]:
    """Seconds of each redraw, by picture: every strategy and count, over all and over the middle of the time."""
    panel = what_if_panel(what_if)
    whole = panel.value.time_range
    spans = (whole, (whole[1] / 4, whole[1] / 2))
    out: dict[str, list[float]] = {}
    for picture in panel.controls["picture"].options:
        for strategy, n, span in itertools.product(what_if.candidates, PARTITIONS, spans):
            begin = time.perf_counter()
            panel.value = replace(panel.value, picture=picture, strategy=strategy, partitions=n, time_range=span)
            out.setdefault(picture, []).append(time.perf_counter() - begin)
    return out


if __name__ == "__main__":
    main()
