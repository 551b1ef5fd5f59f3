"""Generated topics: correct ones as TiCDC writes them, and faults planted in them."""

from __future__ import annotations

import random
from typing import Any

from tiny_logs import closed

Event = dict[str, Any]


class Topic:
    """A topic written as TiCDC writes it: rows by key, broadcasts to all, repeats after a crash."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.partitions = rng.randint(2, 4)
        self.tables = [f"t{i}" for i in range(rng.randint(1, 3))]
        self.logs: list[list[Event]] = [[] for _ in range(self.partitions)]
        self.ts = 10
        self.resolved = 0
        self.values: dict[tuple[str, int], int] = {}
        self.unresolved: list[tuple[int, Event]] = []

    def put(self, partition: int, event: Event) -> None:
        """Append an event to a partition."""
        log = self.logs[partition]
        log.append(event | {"topic": "g", "partition": partition, "offset": len(log), "seq": 0})

    def broadcast(self, event: Event) -> None:
        """Append an event to every partition."""
        for p in range(self.partitions):
            self.put(p, event)

    def home(self, table: str, key: int) -> int:
        """The partition of a row."""
        return (int(table[1:]) * 7 + key) % self.partitions

    def change(self, table: str, key: int, ts: int, value: int) -> Event:
        """An update of a row; each commit changes a key once."""
        before, after = (
            [
                {"name": "id", "mysql_type": "int", "value": str(key), "is_key": True, "flags": None},
                {"name": "v", "mysql_type": "int", "value": str(v), "is_key": False, "flags": None},
            ]
            for v in (self.values.get((table, key), 0), value)
        )
        self.values[table, key] = value
        names = {"schema_name": "g", "table_name": table}
        return {"kind": "row", "op": "update", "commit_ts": ts, "columns": after, "before": before} | names

    def window(self) -> None:
        """Some commits in random order across keys, perhaps a crash, and the watermark."""
        queues: dict[tuple[str, int], list[Event]] = {}
        for _ in range(self.rng.randint(1, 8)):
            self.ts += 1
            for _ in range(self.rng.randint(1, 3)):
                row = (self.rng.choice(self.tables), self.rng.randint(0, 4))
                if not queues.get(row) or queues[row][-1]["commit_ts"] < self.ts:
                    queues.setdefault(row, []).append(self.change(*row, self.ts, self.ts))
        sent: list[tuple[int, Event]] = []
        while any(queues.values()):
            row = self.rng.choice([r for r, q in queues.items() if q])
            sent.append((self.home(*row), queues[row].pop(0)))
        for again in range(self.rng.randint(1, 2)):
            for p, e in sent if not again else sent[self.rng.randint(0, len(sent)) :]:
                self.put(p, e)
        self.resolved = self.ts
        for _ in range(self.rng.randint(1, 2)):
            self.broadcast({"kind": "watermark", "commit_ts": self.resolved})

    def ddl(self) -> None:
        """A DDL of one table, after everything below it."""
        self.ts += 1
        table = self.rng.choice(self.tables)
        query = f"ALTER TABLE `g`.`{table}` ADD COLUMN `c{self.ts}` INT"
        names = {"schema_name": "g", "table_name": table}
        self.broadcast({"kind": "ddl", "commit_ts": self.ts, "query": query} | names)

    def events(self) -> list[Event]:
        """All events."""
        return [e for log in self.logs for e in log]


def topic(seed: int) -> Topic:
    """A correct topic of several windows, with two DDL and a window behind each."""
    made = Topic(random.Random(seed))
    for i in range(made.rng.randint(5, 7)):
        made.window()
        if i in (1, 3):
            made.ddl()
    return made


def late_row(t: Topic) -> list[Event]:
    """A change that no one has seen, below the last watermark."""
    t.put(0, t.change("t0", 99, t.resolved - 1, 0))
    return t.events()


def row_elsewhere(t: Topic) -> list[Event]:
    """The next change of a row in another partition than its last."""
    last = t.rng.choice([e for e in t.events() if e["kind"] == "row"])
    t.put(
        (last["partition"] + 1) % t.partitions,
        t.change(last["table_name"], int(last["columns"][0]["value"]), t.ts + 5, 0),
    )
    return t.events()


def watermark_lost(t: Topic) -> list[Event]:
    """One value missing in one partition, between its first and last."""
    values = sorted({e["commit_ts"] for e in t.events() if e["kind"] == "watermark"})
    lost = t.rng.choice(values[1:-1])
    gone = {"kind": "watermark", "partition": 1, "commit_ts": lost}
    return closed([e for e in t.events() if not gone.items() <= e.items()])


def watermarks_lost(t: Topic) -> list[Event]:
    """No watermark in one partition."""
    t.put(
        1,
        t.change("t0", 50, t.ts + 5, 0)
        | {"columns": None, "before": t.change("t0", 50, 0, 0)["before"], "op": "delete"},
    )
    return closed([e for e in t.events() if not (e["kind"] == "watermark" and e["partition"] == 1)])


def watermark_back(t: Topic) -> list[Event]:
    """A watermark below the last."""
    t.put(t.rng.randrange(t.partitions), {"kind": "watermark", "commit_ts": t.resolved - 1})
    return t.events()


def ddl_lost(t: Topic) -> list[Event]:
    """One DDL missing in one partition."""
    lost = t.rng.choice(sorted({e["commit_ts"] for e in t.events() if e["kind"] == "ddl"}))
    gone = {"kind": "ddl", "partition": 0, "commit_ts": lost}
    return closed([e for e in t.events() if not gone.items() <= e.items()])


def row_below_ddl(t: Topic) -> list[Event]:
    """A new change older than a DDL that blocks its table, behind that DDL and above every watermark."""
    table = t.tables[0]
    t.ts += 10
    t.broadcast(
        {
            "kind": "ddl",
            "commit_ts": t.ts,
            "query": f"TRUNCATE TABLE `g`.`{table}`",
            "schema_name": "g",
            "table_name": table,
        }
    )
    t.put(t.home(table, 77), t.change(table, 77, t.ts - 1, 0))
    return t.events()


def changes_swapped(t: Topic) -> list[Event]:
    """Two new changes of a row in the wrong order."""
    for ts in (t.ts + 9, t.ts + 8):
        t.put(t.home("t0", 3), t.change("t0", 3, ts, ts))
    return t.events()


def other_content(t: Topic) -> list[Event]:
    """A new change sent twice with two contents."""
    for value in (1, 2):
        t.put(t.home("t0", 3), t.change("t0", 3, t.ts + 9, value))
    return t.events()


FAULTS = {
    late_row: "nothing_below_resolved_ts",
    row_elsewhere: "rows_stay_in_one_partition",
    watermark_lost: "resolved_events_on_all_partitions",
    watermarks_lost: "resolved_events_on_all_partitions",
    watermark_back: "watermarks_are_monotone",
    ddl_lost: "ddl_events_on_all_partitions",
    row_below_ddl: "nothing_below_ddl",
    changes_swapped: "first_appearances_are_ordered",
    other_content: "redeliveries_are_identical",
}


def every_fault():
    """One log with all of them, each in a topic and schema of its own."""
    log = []
    for n, fault in enumerate(FAULTS):
        own = {"topic": f"g{n}", "schema_name": f"g{n}"}
        log += [e | {c: v for c, v in own.items() if e.get(c) is not None} for e in fault(topic(n))]
    return log
