"""Explore small worlds of the table scheduler to their end, and count their states.

    python benchmarks/explore_scheduler.py [--variant v3] [--captures 3] [--tables 2] [--moments 0] ...

Prints a line for each depth, and in the end one line for the table in docs/scheduler.md.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import fields

from ticdc_lab.simulate.explore import explore
from ticdc_lab.simulate.scheduler.small_variants import small_world
from ticdc_lab.simulate.scheduler.variants import VARIANTS
from ticdc_lab.simulate.scheduler.world import Bounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = {"captures": 3, "owner_changes": 1, "crashes": 1, "lost": 1, "moments": 0}
    for field in fields(Bounds):
        if field.type == "int":
            name = "--" + field.name.replace("_", "-")
            parser.add_argument(name, type=int, default=defaults.get(field.name, field.default))
    parser.add_argument("--variant", choices=[*VARIANTS], default="v2")
    parser.add_argument("--at-once", action="store_true")
    parser.add_argument("--topics", action="store_true")
    parser.add_argument("--coordinator", action="store_true")
    parser.add_argument("--most-states", type=int, default=20_000_000)
    arguments = vars(parser.parse_args())
    most, variant = arguments.pop("most_states"), arguments.pop("variant")
    started = time.monotonic()

    def told(depth: int, states: int) -> None:
        print(f"depth {depth}: {states:,} states, {time.monotonic() - started:.0f} s", flush=True)

    bounds = Bounds(**arguments)
    found = explore(small_world(bounds, variant), most_states=most, progress=told)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(variant, bounds)
    print(
        f"{found.states:,} states, {found.steps:,} steps, depth {found.depth}, complete: {found.complete}, "
        f"broken: {found.broken}, {time.process_time():.0f} CPU s, {peak_mib:,} MiB"
    )
    for action in found.path:
        print("  ", action)


if __name__ == "__main__":
    main()
