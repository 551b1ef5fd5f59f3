"""Where every partition stands at every watermark step; shared by the ladder and the lag figure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ticdc_lab.events.tso import LOGICAL_BITS
from ticdc_lab.figures.theme import label

Lane = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """One topic along its watermark steps.

    ``x_s`` are the seconds of each step's value since the first; ``stands_s[lane]`` the same of what the partition had
    stated by then (nan before its first watermark); ``least_s`` the least of them; ``behind[lane]`` where it is the
    least and less than the step's own value.
    """

    topic: str
    origin_ms: int
    steps_total: int
    x_s: np.ndarray
    stands_s: dict[Lane, np.ndarray]
    least_s: np.ndarray
    behind: dict[Lane, np.ndarray]

    def held_share(self, lane: Lane) -> float:
        """Share of steps at which the lane holds the topic back."""
        return float(self.behind[lane].mean())

    def held_s_max(self, lane: Lane) -> float:
        """Most seconds the lane was behind while it held the topic back; nan where it never had a watermark."""
        late = (self.x_s - self.stands_s[lane])[self.behind[lane]]
        late = late[~np.isnan(late)]
        return float(late.max()) if len(late) else float("nan")

    def worst(self) -> Lane | None:
        """The lane that holds the topic back at most steps; None if nobody does."""
        ranked = sorted(self.behind, key=lambda lane: (-self.held_share(lane), lane))
        return ranked[0] if ranked and self.behind[ranked[0]].any() else None


def progress(steps: pd.DataFrame, partitions: pd.DataFrame) -> list[TopicProgress]:
    """One :class:`TopicProgress` per topic.

    Parameters
    ----------
    steps
        :func:`ticdc_lab.answers.summary.watermark_steps`.
    partitions
        ``topic, partition`` of all partitions with events, so that one without a watermark is seen.
    """
    return [_topic(str(t), group, partitions[partitions["topic"] == t]) for t, group in steps.groupby("topic")]


def _topic(topic: str, steps: pd.DataFrame, partitions: pd.DataFrame) -> TopicProgress:
    numbers = sorted({int(p) for p in [*steps["partition"], *partitions["partition"]]})
    ends = steps.groupby("step")["step_ts"].max().sort_index()
    origin = int(ends.min()) >> LOGICAL_BITS
    x_s = seconds(ends, origin)
    stated = {(int(p), int(s)): int(ts) for p, s, ts in steps[["partition", "step", "resolved_ts"]].itertuples(False)}
    stands = {p: _so_far([stated.get((p, int(s))) for s in ends.index]) for p in numbers}
    exact = np.array([[-1 if v is None else v for v in stands[p]] for p in numbers], dtype=np.int64)
    least = exact.min(axis=0)
    tops = ends.to_numpy(dtype=np.int64)
    held = (exact < tops) & (exact == least)
    in_s = np.where(exact < 0, np.nan, ((exact >> LOGICAL_BITS) - origin) / 1000)
    lanes = [(topic, p) for p in numbers]
    return TopicProgress(
        topic,
        origin,
        int(steps["steps_total"].max()),
        x_s,
        dict(zip(lanes, in_s, strict=True)),
        np.where(least < 0, np.nan, ((least >> LOGICAL_BITS) - origin) / 1000),
        dict(zip(lanes, held, strict=True)),
    )


def _so_far(values: list[int | None]) -> list[int | None]:
    out: list[int | None] = []
    for v in values:
        before = out[-1] if out else None
        out.append(before if v is None else v if before is None else max(v, before))
    return out


def seconds(ts: pd.Series, origin_ms: int) -> np.ndarray:
    """Seconds of TSOs after a physical time, exact to the millisecond."""
    return np.asarray((ts.to_numpy(dtype=np.int64) >> LOGICAL_BITS) - origin_ms) / 1000


def lane_name(lane: Lane, *, one_topic: bool) -> str:
    """``partition 3``, with the topic where there is more than one."""
    return f"partition {lane[1]}" if one_topic else f"{label(lane[0])} partition {lane[1]}"
