"""Pictures of another number of partitions: the wall, what is written twice, and the procedures side by side."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ticdc_lab import figures
from ticdc_lab.figures.figure import Figure

EVIL = "<b>x</b>"


def plan(procedure: str = "seed", name: str = "s.a") -> dict[str, Any]:
    """A plan of two processors; times as after the decision at 1,000 ms."""
    starts = {"seed": (1900, 1900), "no-feedback": (1500, 1601), "just-add": (1200, 1600)}[procedure]
    processors = [
        {"name": n, "tables": (), "stop_ms": stop, "stop": 0, "start_ms": start}
        for n, stop, start in ((name, 1200, starts[0]), ("s.b", 1600, starts[1]))
    ]
    times = {"at_ms": 1000, "admin_ms": None if procedure == "just-add" else 1400, "start_ms": starts[0]}
    return {"procedure": procedure, "before": 1, "after": 2, "processors": processors} | times


def writes(*rows: tuple[int, str, int, int, int]) -> pd.DataFrame:
    """What :func:`ticdc_lab.repartition.compare.writes` gives."""
    return pd.DataFrame(rows, columns=["partition", "what", "from_ms", "to_ms", "rows"])


WRITES = writes(
    (0, "old", -900, 100, 40), (0, "dropped", 120, 590, 8), (1, "again", 900, 900, 8), (1, "new", 901, 2000, 60)
)


def title(fig: Figure) -> str:
    """The finding."""
    return str(fig.layout.meta["finding"])


def bars(fig: Figure, name: str) -> Any:
    """The bars of a series."""
    (found,) = [t for t in fig.data if t.name and name in t.name]
    return found


def test_the_title_counts_the_pause_and_the_repeats() -> None:
    """The pause ends when the first row is written with the new number."""
    assert title(figures.partition_change(plan(), writes=WRITES)) == (
        "From 1 to 2 partitions, seed: 900 ms of pause, 8 rows sent twice"
    )


def test_the_wall_reaches_from_each_stop_to_each_start() -> None:
    """In seconds since the decision; a moment stays visible."""
    fig = figures.partition_change(plan(), writes=WRITES)
    wall = bars(fig, "the wall")
    assert list(wall.base) == [0.2, 0.6]
    assert [round(v, 3) for v in wall.x] == [0.7, 0.3]
    assert bars(fig, "new number, again").x[0] > 0
    assert fig.layout.xaxis.range[0] == -0.9 and fig.layout.xaxis.range[1] > 0.9


def test_what_is_written_twice_is_hatched() -> None:
    """Both the rows that consumers drop and their second delivery; others are plain."""
    fig = figures.partition_change(plan(), writes=WRITES)
    patterns = {t.name: t.marker.pattern.shape for t in fig.data if t.type == "bar"}
    assert {n for n, p in patterns.items() if p == "/"} == {"old number, dropped", "new number, again"}


def test_just_adding_has_no_wall() -> None:
    """Nor an Admin event; the title shows that there is no barrier."""
    fig = figures.partition_change(plan("just-add"), writes=writes((0, "old", -900, 100, 40), (1, "new", 300, 900, 7)))
    assert title(fig).endswith("no pause and no barrier, 7 rows with the new number")
    assert {"Admin event", "restart", "the wall"} & {t.name for t in fig.data} == set()


def test_rows_behind_the_admin_event_are_named() -> None:
    """Written by a processor that had not heard."""
    fig = figures.partition_change(
        plan("no-feedback"), writes=writes((0, "stray", 450, 590, 3), (1, "new", 600, 900, 7))
    )
    assert title(fig).endswith("3 of the old number too late, after the Admin event")


def test_nothing_written_is_a_sentence() -> None:
    """Instead of empty lanes."""
    assert "no row" in title(figures.partition_change(plan(), writes=writes()))


def test_names_are_escaped() -> None:
    """Tables may be called anything."""
    fig = figures.partition_change(plan(name=EVIL), writes=WRITES)
    assert EVIL not in str(fig.to_json()) and "&lt;b&gt;" in str(fig.to_json())


def faults(**counts: tuple[int, int, int]) -> pd.DataFrame:
    """What :func:`ticdc_lab.repartition.compare.compared` gives."""
    names = ("changes_are_applied", "changes_are_applied_once", "changes_are_applied_in_order")
    evidence = [{"partition": 0, "offset": 3, "commit_ts": 5}, {"partition": 4, "offset": 7, "commit_ts": 6}]
    return pd.DataFrame(
        [
            {"procedure": p.replace("_", "-"), "guarantee": g, "changes": n, "table": EVIL if n else None,
             "message": "m" if n else None, "evidence": evidence if n else None}
            for p, each in counts.items()
            for g, n in zip(names, each, strict=True)
        ]
    )  # fmt: skip


def test_the_procedures_stand_side_by_side() -> None:
    """One series each, and the title shows who keeps what; the note shows the first case of each."""
    fig = figures.procedure_faults(faults(seed=(0, 0, 0), no_feedback=(1, 2, 3), just_add=(0, 0, 9)))
    assert [list(t.y) for t in fig.data] == [[0, 0, 0], [1, 2, 3], [0, 0, 9]]
    assert title(fig) == "seed keeps every change; no-feedback breaks 6 changes; just-add breaks 9 changes"
    note = fig.layout.meta["note"]
    assert "partition 0 offset 3, then partition 4 offset 7" in note and EVIL not in note


def test_a_change_that_may_come_too_early_is_drawn_and_others_name_their_messages() -> None:
    """Two deliveries in two partitions are two lanes; where no drawing fits, the sentence shows where they lie."""
    seen = [{"partition": p, "offset": o, "commit_ts": ts} for p, o, ts in ((0, 3, 5), (4, 7, 9))]
    case = {"guarantee": "changes_are_applied_in_order", "table": "a", "message": "too early", "evidence": seen}
    assert [*figures.counterexample(case).layout.yaxis.ticktext] == ["partition 0", "partition 4"]
    other = figures.counterexample({**case, "guarantee": "changes_are_applied_once"})
    assert other.layout.meta["note"] == "It names partition 0 offset 3, partition 4 offset 7."
