"""The design's consumer once more, message by message with nothing of the package: the model's peer."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pyarrow as pa

Message = tuple[str, int, str, int]
"""``row`` (commit_ts, table, key), ``resolved`` (value, "", 0), ``ddl`` (commit_ts, table, 0)."""

_INTS = ("partition", "seq", "op_rank")
_LONGS = ("offset", "commit_ts", "key_hash", "before_key_hash", "change_hash")
TYPES = dict.fromkeys(_INTS, pa.int32()) | dict.fromkeys(_LONGS, pa.int64())


def random_log(r: random.Random, *, partitions: int, ts_max: int = 14) -> list[list[Message]]:
    """What a correct owner and correct processors write: rows by key, watermarks and DDL to all, tables interleaved."""
    rows = [(ts, f"t{r.randrange(2)}", r.randrange(5)) for ts in range(1, ts_max) for _ in range(r.randrange(3))]
    ddl = sorted(r.sample(range(1, ts_max), r.randrange(3)))
    log: list[list[Message]] = [[] for _ in range(partitions)]
    low = 0
    for mark in sorted({*r.sample(range(1, ts_max + 1), 4), *ddl, ts_max}):
        window = [row for row in dict.fromkeys(rows) if low < row[0] <= mark]
        parts: list[list[Message]] = [[] for _ in range(partitions)]
        for ts, table, key in window:
            parts[key % partitions].append(("row", ts, table, key))
        for part, new in zip(log, parts, strict=True):
            again = [m for m in part[-6:] if m[0] == "row" and r.random() < 0.2]
            part += _keys_in_order(r, new) + again
            if mark in ddl:
                part.append(("ddl", mark, "t0", 0))
            part.append(("resolved", mark, "", 0))
        low = mark
    return log


def _keys_in_order(r: random.Random, rows: list[Message]) -> list[Message]:
    """Rows of one key stay in order, others mix."""
    queues: dict[int, list[Message]] = {}
    for m in rows:
        queues.setdefault(m[3], []).append(m)
    out = []
    while queues:
        key = r.choice(sorted(queues))
        out.append(queues[key].pop(0))
        if not queues[key]:
            del queues[key]
    return out


def narrow_table(log: list[list[Message]]) -> pa.Table:
    """The log as the model reads it."""
    rows = [
        {"topic": "t", "partition": p, "offset": i, "seq": 0, "kind": {"resolved": "watermark"}.get(m[0], m[0]),
         "commit_ts": m[1], "op_rank": 1 if m[0] == "row" else None, "schema_name": "s" if m[2] else None,
         "table_name": m[2] or None, "before_key_hash": None,
         "key_hash": m[3] + 100 * int(m[2][1:]) if m[0] == "row" else None,
         "change_hash": m[1] * 100 + m[3] if m[0] == "row" else None,
         "query": f"ALTER TABLE s.{m[2]} /* {m[1]} */" if m[0] == "ddl" else None}
        for p, part in enumerate(log) for i, m in enumerate(part)
    ]  # fmt: skip
    fields = [(n, TYPES.get(n, pa.string())) for n in rows[0]]
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


@dataclass
class Plain:
    """One listener a partition; ``order`` shows who reads next."""

    log: list[list[Message]]
    restores: bool
    at: list[int] = field(default_factory=list)
    applied: list[tuple[int, int]] = field(default_factory=list)
    """(partition, offset) in order of writing; DDL is (-1, commit_ts)."""
    filtered: list[tuple[int, int]] = field(default_factory=list)

    def run(self, order: list[int]) -> None:
        """Read the next message of each partition that ``order`` names."""
        n = len(self.log)
        self.at, held, resolved = [0] * n, [[] for _ in range(n)], [0] * n
        stands: dict[int, int] = {}
        self.executed: dict[tuple[int, str], int] = {}
        for p in order:
            if p in stands:
                raise AssertionError("a listener that waits does not read")
            offset = self.at[p]
            kind, ts, table, _ = self.log[p][offset]
            self.at[p] += 1
            if kind == "row":
                held[p].append((ts, offset, table))
            elif kind == "resolved":
                resolved[p] = max(resolved[p], ts)
                if self.restores:
                    self._write(held, range(n), min(resolved))
                else:
                    self._write(held, [p], resolved[p])
            else:
                if not self.restores:
                    self._write(held, [p], ts)
                stands[p] = ts
                if len(stands) == n:
                    if self.restores:
                        self._write(held, range(n), ts)
                    self.applied.append((-1, ts))
                    stands.clear()

    def _write(self, held: list, whose: object, upto: int) -> None:
        due = sorted((ts, p, o, t) for p in whose for ts, o, t in held[p] if ts <= upto)  # type: ignore[attr-defined]
        former = dict(self.executed)
        for ts, p, o, table in due:
            record = (-1 if self.restores else p, table)
            if ts < former.get(record, 0):
                self.filtered.append((p, o))
            else:
                self.applied.append((p, o))
                self.executed[record] = max(self.executed.get(record, 0), ts)
        for p in whose:  # type: ignore[attr-defined]
            held[p][:] = [h for h in held[p] if h[0] > upto]


def reading_order(log: list[list[Message]], speeds: list[int]) -> list[int]:
    """Who reads when each listener takes ``speeds`` µs a message, and waits at DDL for the slowest."""
    at, clock, order = [0] * len(log), [0] * len(log), []
    stands: dict[int, int] = {}
    while True:
        ready = [(clock[p] + speeds[p], p) for p in range(len(log)) if p not in stands and at[p] < len(log[p])]
        if not ready:
            return order
        time, p = min(ready)
        order.append(p)
        clock[p] = time
        if log[p][at[p]][0] == "ddl":
            stands[p] = 1
            if len(stands) == len(log):
                clock = [time] * len(log)
                stands.clear()
        at[p] += 1
