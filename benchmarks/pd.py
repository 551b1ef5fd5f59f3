"""Measure the whole-cluster model of PD: CPU seconds and peak memory of virtual time, in one process.

python benchmarks/pd.py small      # 600 regions on 5 stores, a sixth joins, 30 minutes
python benchmarks/pd.py large      # 50,000 regions on 90 stores, ten join, one hour
python benchmarks/pd.py million    # 1,000,000 regions on 100 stores are loaded, and run for a second
"""

from __future__ import annotations

import resource
import sys
import time

from ticdc_lab.simulate.pd.world import SECOND_US, Start, StartStore, StoreStart, Timed, World, spread_regions

SIZES = {"small": (600, 5, 1, 1800), "large": (50_000, 90, 10, 3600), "million": (1_000_000, 100, 0, 1)}


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "small"
    regions, stores, joining, seconds = SIZES[name]
    started = time.process_time()
    here = range(1, stores + 1)
    later = range(stores + 1, stores + joining + 1)
    start = Start(
        stores=(*(StoreStart(i) for i in here), *(StoreStart(i, started=False) for i in later)),
        regions=spread_regions(regions, here),
    )
    world = World(start, 1, changes=[Timed(SECOND_US, StartStore(i)) for i in later])
    loaded = time.process_time()
    world.run(seconds * SECOND_US)
    ended = time.process_time()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    made = ", ".join(f"{n:,} {desc}" for desc, n in sorted(world.controller.created.items())) or "no operator"
    print(
        f"{name}: {regions:,} regions, {stores} stores and {joining} that join, {seconds:,} s: "
        f"loaded in {loaded - started:.1f} CPU s, run in {ended - loaded:.1f} CPU s, {peak_mib:,.0f} MiB; {made}"
    )


if __name__ == "__main__":
    main()
