"""How long the table below a picture needs for a page of a million rows, with the histograms of its columns.

``python benchmarks/tables.py [--rows N]``
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from ticdc_lab.widgets.evidence import Evidence

ASKED: dict[str, dict[str, Any]] = {
    "first page": {},
    "sort": {"sort": "lag_s", "down": True},
    "page 10,000 of the sorted rows": {"sort": "lag_s", "page": 10_000},
    "filter a number": {"filters": {"lag_s": ">0.9"}},
    "filter a text": {"filters": {"table": "orders"}},
}


def measured_ms(do: Callable[[], object]) -> int:
    """Milliseconds of one call."""
    begin = time.perf_counter()
    do()
    return round(1000 * (time.perf_counter() - begin))


def main() -> None:
    """Ask as the browser does, and print the time of each answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    n = parser.parse_args().rows
    drawn = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "commit_ts": np.sort(drawn.integers(440_000_000_000_000_000, 470_000_000_000_000_000, n)),
            "partition": drawn.integers(0, 12, n),
            "offset": np.arange(n),
            "table": drawn.choice(["shop.orders", "shop.users", "bank.accounts"], n),
            "lag_s": drawn.random(n),
        }
    )
    table, sent = Evidence(), list[Any]()
    table.send = lambda content, buffers=None: sent.append(content)
    print(f"show: {measured_ms(lambda: table.show({'rows': frame}))} ms")
    for what, asked in ASKED.items():
        message = {"kind": "rows", "name": "rows", **asked}
        print(f"{what}: {measured_ms(lambda m=message: table._hear(table, m, []))} ms")  # type: ignore[misc]
        assert sent[-1]["kind"] == "rows", sent[-1]


if __name__ == "__main__":
    main()
