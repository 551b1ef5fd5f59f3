"""The what-if: measuring every dispatcher at 1 to 128 partitions once, and answering from it.

    python benchmarks/what_if.py --events 1000000 [--engine spark] [--rounds 3] [--alone] [--json out.json]

*sweep* is one ``WhatIf.from_events`` over the materialised log: balance by rows and bytes over time, row order, table
order and transactions, and conflict detection. Its peers count the balance alone, of one dispatcher, at the same 128
partition counts, with their own hash (they have no crc32): DuckDB and polars over the same Parquet. *redraw* is the
panel's time for a changed control, over every strategy, picture and partition count of the list. CPU seconds are of
the process and all that it started.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import duckdb
import polars as pl
from run import Meter

from ticdc_lab.dispatch.sweep import compile_kernels
from ticdc_lab.dispatch.whatif import WhatIf
from ticdc_lab.engine.sessions import session
from ticdc_lab.facts.catalog import catalog_of
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.sources.load import load
from ticdc_lab.widgets import what_if_panel

HERE = Path(__file__).parent
PARTITIONS = (1, 3, 4, 8, 16, 31, 64, 128)


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--protocol", default="open-protocol")
    parser.add_argument("--engine", choices=["spark", "embedded"], default="spark")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="without the peers")
    parser.add_argument("--json")
    asked = parser.parse_args()
    source = HERE / "out" / f"{asked.protocol}_{asked.events}.parquet"
    spark = session(asked.engine, cores=2)
    compile_kernels()
    with tempfile.TemporaryDirectory(dir=HERE / "out") as folder:
        took: dict[str, list[dict[str, float]]] = {}

        def measure(name: str, run: Callable[[], object]) -> None:
            took.setdefault(name, []).append(Meter(own=True).time(run))

        raw = load(spark, str(source), protocol=asked.protocol)
        logs: list[ChangeLog] = []
        measure("decoding into Parquet", lambda: logs.append(raw.materialise(f"{folder}/decoded")))
        (log,) = logs
        catalog = catalog_of(log.events)
        files = f"{folder}/decoded/**/[!_]*.parquet"
        made: list[WhatIf] = []
        for _ in range(asked.rounds):
            measure("sweep", lambda: made.append(WhatIf.from_events(log.events, catalog)))
            for name, peer in () if asked.alone else PEERS.items():
                measure(f"{name}, balance of one hash", partial(peer, files))
        what_if = made[-1]
        drawn = [t for times in redraws(what_if).values() for t in times]
    found = {
        "engine": asked.engine,
        "rows": int(sum(lane.changes.sum() for lane in what_if.lanes.values())),
        "medians": {
            name: {k: statistics.median(t[k] for t in times) for k in times[0]} for name, times in took.items()
        },
        "redraw_cpu_s": {
            "median": statistics.median(drawn),
            "p95": statistics.quantiles(drawn, n=20)[-1],
            "of": len(drawn),
        },
        "load": os.getloadavg(),
    }
    print(json.dumps(found, indent=1))
    if asked.json:
        Path(asked.json).write_text(json.dumps(found, indent=1), encoding="utf-8")


def by_duckdb(files: str) -> None:
    """The rows of every partition at 1 to 128 partitions."""
    duckdb.sql(
        "SELECT n, h % n AS p, count(*) FROM (SELECT hash(key_hash) AS h FROM read_parquet('" + files + "') "
        "WHERE kind = 'row'), range(1, 129) AS r(n) GROUP BY ALL"
    ).fetchall()


def by_polars(files: str) -> None:
    """The same, one partition count after the other, over hashes held in memory."""
    rows = pl.scan_parquet(files).filter(pl.col("kind") == "row").select(h=pl.col("key_hash").hash()).collect()
    for n in range(1, 129):
        rows.group_by(pl.col("h") % n).len()


PEERS = {"DuckDB": by_duckdb, "polars": by_polars}


def redraws(what_if: WhatIf) -> dict[str, list[float]]:
    """CPU seconds of each redraw, by picture: every strategy and count, over all and over the middle of the time."""
    panel = what_if_panel(what_if)
    whole = panel.value.time_range
    spans = (whole, (whole[1] / 4, whole[1] / 2))
    out: dict[str, list[float]] = {}
    for picture in panel.controls["picture"].options:
        for strategy, n, span in itertools.product(what_if.candidates, PARTITIONS, spans):
            begin = time.process_time()
            panel.value = replace(panel.value, picture=picture, strategy=strategy, partitions=n, time_range=span)
            out.setdefault(picture, []).append(time.process_time() - begin)
    return out


if __name__ == "__main__":
    main()
