"""Where what a consumer does is drawn: lanes, places, moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

# What a consumer's lanes show at any moment: where each row change stands, what was read, who waits, who is down.


Order = Literal["offset", "commit"]
Lane = tuple[str, int]

UNREAD, BUFFERED, APPLIED, THROWN = "not read yet", "buffered", "applied", "thrown away"
NEVER = 1 << 62
"""A time that does not come; exact as a float, too."""


@dataclass(frozen=True, slots=True)
class Seam:
    """Place of the last change that is applied and of the first that is not, and how many are not before the last."""

    ahead: float
    behind: float
    missing: int


@dataclass(frozen=True, eq=False, slots=True)
class LaneScene:
    """A run of the consumer model, laid out in lanes."""

    lanes: tuple[Lane, ...]  # topic and partition, from the top
    # The row changes that are drawn: ``lane`` (its place), ``x``, ``dy``, ``commit_ts``, ``table``, ``offset``,
    # ``outcome``, and when it was ``read_at``, ``applied_at`` and ``gone_at`` (µs; :data:`NEVER` where it was not).
    rows: pd.DataFrame
    # Watermarks, DDL and Admin events that were read: ``lane, x, kind`` (``resolved``, ``ddl``, ``admin``), ``at``,
    # ``commit_ts``, ``detail``, and ``done_at`` when it was executed.
    marks: pd.DataFrame
    # ``waits``, ``downs``: stretches of a lane: ``lane, x, since, until``, ``commit_ts`` and ``detail`` of what it
    # waits for; ``crash`` or ``move`` for those that are down.
    waits: pd.DataFrame
    downs: pd.DataFrame
    # Each change of the run once, however often delivered: ``x``, and ``first_at`` when it is applied first.
    changes: pd.DataFrame
    written: pd.DataFrame  # all row changes of the run that are applied, drawn or not: ``lane, x, applied_at``
    total: int  # row changes of the whole run
    order: Order  # what ``x`` is
    end_us: int  # when the last thing drawn happens
    kind: str = "partition"  # what a lane is: a partition of a topic, or a stream of a storage sink's files

    def states(self, at_us: int) -> npt.NDArray[np.object_]:
        """Where each of :attr:`rows` is at a moment."""
        gone, applied, read = (self.rows[c].to_numpy() <= at_us for c in ("gone_at", "applied_at", "read_at"))
        return np.select([gone, applied, read], [THROWN, APPLIED, BUFFERED], UNREAD).astype(object)

    def fronts(self, at_us: int) -> dict[int, float]:
        """How far to the right each lane is applied at a moment; lanes without anything applied are left out."""
        done = self.written["applied_at"].to_numpy() <= at_us
        lanes, places = self.written["lane"].to_numpy()[done], self.written["x"].to_numpy()[done]
        return {int(lane): float(places[lanes == lane].max()) for lane in np.unique(lanes)}

    def seam(self, at_us: int) -> Seam:
        """Where the applied changes end and the others begin, in the order of :attr:`order`."""
        x, done = self.changes["x"].to_numpy(), self.changes["first_at"].to_numpy() <= at_us
        ahead = float(x[done].max()) if done.any() else -np.inf
        behind = float(x[~done].min()) if not done.all() else np.inf
        return Seam(ahead, behind, int((~done & (x <= ahead)).sum()))

    def lasting(self, stretches: pd.DataFrame, at_us: int) -> npt.NDArray[np.bool_]:
        """Which of :attr:`waits` or :attr:`downs` last at a moment."""
        begun, open_still = stretches["since"].to_numpy() <= at_us, at_us < stretches["until"].to_numpy()
        lasting: npt.NDArray[np.bool_] = begun & open_still
        return lasting

    def moments(self, most: int) -> list[int]:
        """Times (µs) at which something changes, evenly thinned to ``most``; the first is 0."""
        times = [self.rows[c] for c in ("read_at", "applied_at", "gone_at")]
        times += [self.marks["at"], self.marks["done_at"]]
        times += [stretches[end] for stretches in (self.waits, self.downs) for end in ("since", "until")]
        found = np.unique(np.concatenate([[0], *[t.to_numpy(dtype=np.int64) for t in times]]))
        found = found[found <= self.end_us]
        chosen = np.unique(np.linspace(0, len(found) - 1, min(most, len(found))).round().astype(int))
        return [int(t) for t in found[chosen]]


# How a run of the consumer model is laid out in lanes: which row changes are drawn, and where.


_NONE = -1
"""The value for no partition and no commit_ts here: TSO are too large for frames in which a missing number is NaN."""

_THROWN = ("dropped", "discarded", "filtered", "forgotten")


def scene(
    deliveries: pd.DataFrame, steps: pd.DataFrame, *, order: Order = "offset", around_us: int | None = None,
    most: int = 400, lane: str = "partition",
) -> LaneScene:  # fmt: skip
    """Lay a run out.

    ``deliveries``, ``steps``: :data:`ticdc_lab.consumer.record.DELIVERIES` and ``STEPS`` as pandas frames. ``order``:
    what goes to the right: the ``offset`` in the partition, or the ``commit`` order, in which a state that existed
    upstream is a straight front. ``around_us``: draw the row changes read around this moment; by default from the
    beginning. ``most``: row changes drawn. ``lane``: what a lane is, ``partition`` or ``stream``.
    """
    deliveries, steps = _known(deliveries), _known(steps)
    read = deliveries.sort_values(["read_at", "topic", "partition", "offset", "seq"], kind="stable")
    first = 0
    if around_us is not None and len(read) > most:
        first = int(np.searchsorted(read["read_at"].to_numpy(), around_us, side="right")) - 2 * most // 3
        first = min(max(0, first), len(read) - most)
    shown = read.iloc[first : first + most]
    known = [*_lanes(deliveries), *_lanes(steps[steps["partition"] != _NONE])]
    lanes = tuple(sorted(set(known)))
    low = int(shown["read_at"].min()) if first else 0
    end = int(shown[["read_at", "applied_at"]].max().max()) if first + len(shown) < len(read) else NEVER
    said = steps[(steps["at"] >= low) & (steps["at"] <= end)]
    place = _Places(lanes, shown, order)
    rows = pd.DataFrame({c: shown[c] for c in ("commit_ts", "table", "offset", "outcome", "read_at")})
    rows["lane"], rows["x"] = place.lane(shown), place.of_rows(shown)
    rows["applied_at"] = shown["applied_at"].where(shown["applied_at"] != _NONE, NEVER)
    rows["gone_at"] = _gone(shown, steps)
    stack = rows.groupby(["lane", "x"], sort=False)["x"]
    rows["dy"] = 0.3 * ((stack.cumcount() + 0.5) / stack.transform("size") - 0.5)
    rows = rows.reset_index(drop=True)
    marks, waits = _marks(said, steps, place), _waits(said, place)
    downs = _stretches(said, place, begins=("crash", "move"), ends=("begin",))
    last = [int(f[c].max()) for f, c in ((rows, "read_at"), (marks, "at"), (waits, "since"), (said, "at")) if len(f)]
    last += [int(t) for t in rows["applied_at"] if t < NEVER]
    return LaneScene(
        lanes, rows, marks, waits, downs, _changes(read, place), _written(read, place), len(read), order,
        max([0, *last]), lane,
    )  # fmt: skip


def moments(deliveries: pd.DataFrame, steps: pd.DataFrame, *, most: int) -> list[int]:
    """Times (µs) at which a run changes anything, evenly thinned to ``most``; the first is 0.

    Parameters
    ----------
    deliveries, steps
        As for :func:`scene`.
    most
        Times at most.
    """
    return scene(deliveries, steps, most=max(1, len(deliveries))).moments(most)


class _Places:
    """Where things stand: the lane of a partition, and how far to the right."""

    def __init__(self, lanes: tuple[Lane, ...], shown: pd.DataFrame, order: Order) -> None:
        self.number = {lane: i for i, lane in enumerate(lanes)}
        self._order = order
        self._commits = np.unique(shown["commit_ts"].to_numpy(dtype=np.int64))
        self._seqs = 1 + (int(shown["seq"].max()) if len(shown) else 0)

    def lane(self, frame: pd.DataFrame) -> list[int]:
        """Numbers of the lanes."""
        return [self.number[t, int(p)] for t, p in zip(frame["topic"], frame["partition"], strict=True)]

    def of_rows(self, rows: pd.DataFrame) -> pd.Series:
        """Places of row changes."""
        if self._order == "offset":
            return rows["offset"] + 0.9 * rows["seq"] / self._seqs
        return pd.Series(np.searchsorted(self._commits, rows["commit_ts"]), index=rows.index, dtype=float)

    def of_marks(self, marks: pd.DataFrame) -> pd.Series:
        """Places of watermarks, DDL and Admin events: in commit order behind all row changes up to them."""
        if self._order == "offset":
            return marks["offset"].astype(float)
        behind = np.searchsorted(self._commits, marks["commit_ts"].to_numpy(dtype=np.int64), side="right") - 0.5
        return pd.Series(behind, index=marks.index, dtype=float)


def _known(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with whole numbers alone where some may be missing."""
    numbers = [c for c in ("partition", "offset", "commit_ts", "applied_at") if c in frame]
    return frame.assign(**{c: frame[c].astype("Int64").fillna(_NONE).astype("int64") for c in numbers})


def _lanes(frame: pd.DataFrame) -> list[Lane]:
    """Topic and partition of each row, once."""
    found = frame[["topic", "partition"]].drop_duplicates()
    return [(str(t), int(p)) for t, p in zip(found["topic"], found["partition"], strict=True)]


def _written(read: pd.DataFrame, place: _Places) -> pd.DataFrame:
    applied = read[read["applied_at"] != _NONE]
    return pd.DataFrame({"lane": place.lane(applied), "x": place.of_rows(applied), "applied_at": applied["applied_at"]})


def _changes(read: pd.DataFrame, place: _Places) -> pd.DataFrame:
    """Each change once: what was delivered again has the same hash; one without a hash is its own."""
    own = read["change_hash"].astype("Int64").fillna(0)
    alone = np.where(read["change_hash"].isna(), np.arange(len(read)), -1)
    at = read["applied_at"].where(read["applied_at"] != _NONE, NEVER)
    each = pd.DataFrame({"x": place.of_rows(read), "first_at": at, "ts": read["commit_ts"], "own": own, "alone": alone})
    return each.groupby(["ts", "own", "alone"], sort=False).agg(x=("x", "min"), first_at=("first_at", "min"))


def _gone(shown: pd.DataFrame, steps: pd.DataFrame) -> list[int]:
    """When each row change was thrown away: as read, when released, at an Admin event, or with its listener."""
    ends = {
        "filtered": steps[steps["action"].isin(["write", "resolved", "ddl"])],
        "forgotten": steps[steps["action"].isin(["crash", "move"])],
        "discarded": steps[steps["action"] == "admin seen"],
    }
    out = []
    for r in shown[["outcome", "read_at", "topic", "partition", "commit_ts"]].itertuples(index=False):
        if r.outcome not in _THROWN:
            out.append(NEVER)
            continue
        after = ends.get(r.outcome, steps.iloc[:0])
        own = (after["partition"] == _NONE) | ((after["partition"] == r.partition) & (after["topic"] == r.topic))
        own &= after["at"] >= r.read_at
        own &= (r.outcome in ("forgotten", "discarded")) | (after["commit_ts"] >= r.commit_ts)
        out.append(int(after.loc[own, "at"].min()) if own.any() else int(r.read_at))
    return out


_READ = {"resolved": "resolved", "ddl seen": "ddl", "admin seen": "admin"}


def _marks(said: pd.DataFrame, steps: pd.DataFrame, place: _Places) -> pd.DataFrame:
    seen = said[said["action"].isin(_READ) & (said["partition"] != _NONE)]
    done = steps[steps["action"] == "ddl"].groupby("commit_ts")["at"].min()
    marks = pd.DataFrame({c: seen[c] for c in ("at", "commit_ts", "detail")})
    marks["kind"] = seen["action"].map(_READ)
    marks["lane"], marks["x"] = place.lane(seen), place.of_marks(seen)
    marks["done_at"] = seen["commit_ts"].map(done).where(marks["kind"] == "ddl").fillna(NEVER).astype("int64")
    goes_on = steps[steps["action"] == "resume"]
    for i, s in seen[seen["action"] == "admin seen"].iterrows():
        own = (goes_on["topic"] == s["topic"]) & (goes_on["partition"] == s["partition"]) & (goes_on["at"] >= s["at"])
        marks.at[i, "done_at"] = int(goes_on.loc[own, "at"].min()) if own.any() else NEVER
    return marks.reset_index(drop=True)


def _waits(said: pd.DataFrame, place: _Places) -> pd.DataFrame:
    """From each wait to the next time that the listener resumes, crashes or moves; behind what it read last."""
    found = _stretches(said, place, begins=("wait",), ends=("resume", "crash", "move"))
    seen = said[said["action"].isin(_READ) & (said["partition"] != _NONE)]
    at = pd.DataFrame({"lane": place.lane(seen), "x": place.of_marks(seen), "at": seen["at"]})
    before = [at[(at["lane"] == w.lane) & (at["at"] <= w.since)]["x"] for w in found.itertuples()]
    return found.assign(x=[float(x.iloc[-1]) if len(x) else 0.0 for x in before])


def _stretches(said: pd.DataFrame, place: _Places, *, begins: tuple[str, ...], ends: tuple[str, ...]) -> pd.DataFrame:
    """Times between two steps of a lane; a step without partition is of all lanes."""
    out: list[tuple[int, int, int, str, object, object]] = []
    for (topic, partition), lane in place.number.items():
        own = (said["partition"] == _NONE) | ((said["partition"] == partition) & (said["topic"] == topic))
        since: dict[str, object] | None = None
        for s in said[own & said["action"].isin([*begins, *ends])].to_dict("records"):
            if since is not None and s["action"] in ends:
                out.append((lane, int(since["at"]), int(s["at"]), since["action"], since["commit_ts"], since["detail"]))  # type: ignore[call-overload, arg-type]
                since = None
            if since is None and s["action"] in begins:
                since = {str(k): v for k, v in s.items()}
        if since is not None:
            out.append((lane, int(since["at"]), NEVER, since["action"], since["commit_ts"], since["detail"]))  # type: ignore[call-overload, arg-type]
    return pd.DataFrame(out, columns=["lane", "since", "until", "action", "commit_ts", "detail"])
