"""Two futures side by side, as numbers: time to balance, data moved, the peak load of each store, thrash."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import pyarrow as pa

from ticdc_lab.simulate.pd.world.run import Run
from ticdc_lab.simulate.pd.world.settings import SECOND_US

CLOSE = 0.05
BACK_WITHIN_US = 60 * SECOND_US


class Future(NamedTuple):
    """What a run came to from some moment on.

    Parameters
    ----------
    peers_even_s, leaders_even_s
        Seconds after that moment since when all live stores were within 5 % (and one) of the mean; None: not at the
        end.
    moved_mib
        Data copied between stores: the regions whose snapshots arrived, each as large as it is.
    peak_mib_s
        The most snapshot data that each store sent and received in a second, by store.
    peak_leaders, peak_peers
        The most that each store had.
    operators
        Started, by description.
    failed
        Cancelled, replaced or timed out after their start.
    thrash
        The share of moves of peers and leaders that took back one of the last minute.
    done_s
        When the last operator ended; None while some run.
    """

    peers_even_s: float | None
    leaders_even_s: float | None
    moved_mib: float
    peak_mib_s: dict[int, float]
    peak_leaders: dict[int, int]
    peak_peers: dict[int, int]
    operators: dict[str, int]
    failed: int
    thrash: float
    done_s: float | None


def future(run: Run, from_us: int = 0) -> Future:
    """Measure a run from a moment on."""
    samples = [r for r in run.stores.to_pylist() if r["time_us"] >= from_us]
    ops = [o for o in run.operators.to_pylist() if o["started_us"] is not None and o["started_us"] >= from_us]
    step_s = run.watch.sample_us / SECOND_US
    counts: dict[str, int] = defaultdict(int)
    for o in ops:
        counts[o["desc"]] += 1
    ended = [o["finished_us"] for o in ops]
    return Future(
        _even_since(samples, "peers", from_us), _even_since(samples, "leaders", from_us),
        _moved_mib(run, from_us), _peak(samples, "snapshot_mib", step_s),
        {s: int(n) for s, n in _peak(samples, "leaders").items()},
        {s: int(n) for s, n in _peak(samples, "peers").items()}, dict(sorted(counts.items())),
        sum(o["status"] not in ("success", "started") for o in ops), thrash(ops),
        None if None in ended else max(((e - from_us) / SECOND_US for e in ended), default=0.0),
    )  # fmt: skip


def _moved_mib(run: Run, from_us: int) -> float:
    moved = run.recording.moved
    return moved[-1][1] - next((mib for time_us, mib in reversed(moved) if time_us <= from_us), 0.0)


def _even_since(samples: list[dict[str, Any]], what: str, from_us: int) -> float | None:
    by_time: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for r in samples:
        by_time[r["time_us"]].append(r)
    since = None
    for time_us, rows in sorted(by_time.items()):
        counts = [r[what] for r in rows if r["state"] == "Up"]
        mean = sum(counts) / max(len(counts), 1)
        even = all(abs(c - mean) <= CLOSE * mean + 1 for c in counts)
        since = (time_us if since is None else since) if even else None
    return None if since is None else (since - from_us) / SECOND_US


def _peak(samples: list[dict[str, Any]], what: str, per: float = 1.0) -> dict[int, float]:
    found: dict[int, float] = {}
    for r in samples:
        found[r["store"]] = max(found.get(r["store"], 0.0), r[what] / per)
    return dict(sorted(found.items()))


def thrash(operators: list[dict[str, Any]]) -> float:
    """Give the share of moves that take back a move of the minute before."""
    last: dict[tuple[int, bool], tuple[int, int, int]] = {}
    moves = back = 0
    for o in sorted(operators, key=lambda o: o["started_us"]):
        if o["status"] != "success" or not o["from_store"] or not o["to_store"]:
            continue
        moves += 1
        key = o["region"], o["brief"].split(" ")[1:2][0] == "leader" if " " in o["brief"] else False
        before = last.get(key)
        if before and before[:2] == (o["to_store"], o["from_store"]) and o["started_us"] - before[2] <= BACK_WITHIN_US:
            back += 1
        last[key] = o["from_store"], o["to_store"], o["started_us"]
    return back / moves if moves else 0.0


def side_by_side(runs: dict[str, Run], from_us: int = 0) -> pa.Table:
    """Put runs side by side: a row a number, a column a run.

    Parameters
    ----------
    runs
        By name.
    from_us
        From when on they are measured.

    Returns
    -------
    pyarrow.Table
        ``what`` and a text column for each run.
    """
    told = {name: _told(future(run, from_us)) for name, run in runs.items()}
    names = list(dict.fromkeys(k for t in told.values() for k in t))
    columns: dict[str, list[str]] = {"what": names}
    for name, t in told.items():
        columns[name] = [t.get(k, "-") for k in names]
    return pa.table(columns)


def _told(f: Future) -> dict[str, str]:
    def seconds(value: float | None) -> str:
        return "not yet" if value is None else f"{value:.0f} s"

    return {
        "peers within 5 % after": seconds(f.peers_even_s),
        "leaders within 5 % after": seconds(f.leaders_even_s),
        "last operator ended after": seconds(f.done_s),
        "data copied between stores": f"{f.moved_mib / 1024:.1f} GiB",
        "peak of a store": f"{max(f.peak_mib_s.values(), default=0.0):.0f} MiB/s",
        "most leaders on a store": str(max(f.peak_leaders.values(), default=0)),
        "most peers on a store": str(max(f.peak_peers.values(), default=0)),
        "moved back within a minute": f"{f.thrash:.1%}",
        "operators that failed": str(f.failed),
        **{f"operators: {desc}": str(n) for desc, n in f.operators.items()},
    }
