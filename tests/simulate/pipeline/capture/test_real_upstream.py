"""Captures on the modelled TiKV, under loads with DDL and faults that a seed draws; the run's own auditor watches."""

from __future__ import annotations

import random

import pytest
from exploring import seeds
from scripted import MS, info

from ticdc_lab.machines.clock import ts_of, us_of
from ticdc_lab.simulate.faults import Ask, Crash, Part, Restart
from ticdc_lab.simulate.pipeline.kv_messages import DELETE, PUT, Merge, Mutation, Split, TransferLeader
from ticdc_lab.simulate.pipeline.run import simulate
from ticdc_lab.simulate.pipeline.settings import RULES, SEMANTICS, CaptureSettings, PipelineSettings
from ticdc_lab.simulate.pipeline.tables import FinishedJob, Raw, key_of
from ticdc_lab.simulate.pipeline.tidb_state import ClientTxn, Load
from ticdc_lab.simulate.scheduler.etcd_messages import Expire
from ticdc_lab.simulate.scheduler.roles import MoveTable
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings as Scheduler
from ticdc_lab.simulate.trace import NOTHING

STORES = ("tikv-1", "tikv-2", "tikv-3")
TABLES = (101, 102, 103)


def load(seed, until_ms):
    """Give transactions, long ones and rolled back ones among them, and a DDL every second or two."""
    chance = random.Random(seed)
    width, tables = dict.fromkeys(TABLES, 2), list(TABLES)
    txns, jobs, busy, there = [], [], {}, set()
    at, next_ddl = 100, 2000
    while at < until_ms:
        if at >= next_ddl:
            next_ddl = at + chance.randrange(900, 2500)
            jobs.append(((at + 150) * MS, _job(chance, len(jobs) + 1, tables, width)))
            at += 300
        puts = {}
        for _ in range(chance.randint(1, 6)):
            table = chance.choice(tables)
            key = key_of(table, chance.randrange(60))
            if busy.get(key, -999) <= at - 400:
                busy[key] = at
                cells = tuple(chance.randrange(1000) for _ in range(width[table]))
                stays = chance.random() < 0.85 or key not in there
                value = Raw(tuple(range(1, width[table] + 1)), cells) if stays else None
                puts[key] = Mutation(key, PUT if value else DELETE, value)
        if puts:
            hold_us = chance.choice([0, 0, 0, 20_000, 80_000])
            txns.append(ClientTxn(at * MS, hold_us, tuple(puts.values()), chance.random() < 0.05))
            if not txns[-1].rolls_back:
                there = there.union(puts) - {m.key for m in puts.values() if m.op == DELETE}
        at += chance.choice([2, 5, 9, 15])
    return Load(tuple(info(t) for t in TABLES), tuple(txns), tuple(jobs))


def _job(chance, number, tables, width):
    kind = chance.choice(["add", "create", "truncate", "drop"])
    old, new = chance.choice(tables), 200 + number
    if kind == "add" or (kind == "drop" and len(tables) < 3):
        width[old] += 1
        return FinishedJob(number, "add column", f"alter t{old}", "test", f"t{old}", info=info(old, width[old]))
    if kind == "create":
        tables.append(new)
        width[new] = 2
        return FinishedJob(number, "create table", f"create t{new}", "test", f"t{new}", info=info(new))
    tables.remove(old)
    if kind == "drop":
        return FinishedJob(number, "drop table", f"drop t{old}", "test", f"t{old}", dropped=old)
    tables.append(new)
    width[new] = width[old]
    table = info(new, width[new], f"t{old}")
    return FinishedJob(number, "truncate table", f"truncate t{old}", "test", f"t{old}", dropped=old, info=table)


def faults(seed, until_ms):
    """Give crashes of captures and stores, regions that change, tables that move, links that are cut."""
    chance = random.Random(seed + 1000)
    found = []
    for _ in range(5):
        at = chance.randrange(1500, until_ms) * MS
        capture, store = f"capture-{chance.randint(1, 3)}", chance.choice(STORES)
        key, others = key_of(chance.choice(TABLES), chance.randrange(60)), [s for s in STORES if s != store]
        found += chance.choice(
            [
                [Crash(at, capture), Restart(at + 900 * MS, capture)],
                [Crash(at, store), Restart(at + 2000 * MS, store)],
                [Ask(at, s, Split(key)) for s in STORES],
                [Ask(at, s, Merge(key)) for s in STORES],
                [Ask(at, s, TransferLeader(key, store)) for s in others],
                [Ask(at, f"capture-{i}", MoveTable(chance.choice(TABLES), capture)) for i in (1, 2, 3)],
                [Ask(at, "etcd", Expire(capture))],
                [Part(at, capture, chance.choice([store, "etcd", "downstream", "pd"]), for_us=3000 * MS)],
            ]
        )
    return sorted(found, key=lambda f: f.at_us)


@pytest.mark.parametrize("seed", seeds([0, 1, 3, 5, 7], of=range(12)))  # these have each protocol, rule and semantic
def test_nothing_that_is_promised_is_broken_and_the_checkpoint_comes_to_the_end(seed):
    """Every protocol, rule and semantic; little memory in every other run, so that rows go to disk."""
    variant, rule, semantics = ("v2", "v3", "v4")[seed % 3], RULES[seed % 2], SEMANTICS[seed // 2 % 4]
    capture = CaptureSettings(rule, semantics, 100 if seed % 2 else 100_000, 16, 64)
    settings = PipelineSettings(Scheduler(variant=variant, captures=3), capture=capture)
    run = simulate(
        settings, load(seed, 5000), faults=faults(seed, 5000), seed=seed, until_us=16_000 * MS, level=NOTHING
    )
    assert run.violation is None
    assert us_of(run.checkpoint_ts) > 15_000 * MS
    assert run.measures.ddls == len(run.load.jobs) > 0


@pytest.mark.parametrize("start_ms", [None, 2600])
def test_a_changefeed_that_is_created_later_knows_the_tables_of_its_start(start_ms):
    """What was committed after start_ts comes from scans, and no DDL before it is executed."""
    of, created_us = load(3, 5000), 4000 * MS
    start_ts = ts_of(start_ms * MS) if start_ms else None
    settings = PipelineSettings(Scheduler(captures=2), start_ts=start_ts, created_us=created_us)
    run = simulate(settings, of, seed=1, until_us=9000 * MS, level=NOTHING)
    assert run.violation is None
    assert us_of(run.checkpoint_ts) > 8_000 * MS
    assert run.measures.committed == run.measures.delivered > 100
    expected = [job for ts, job in run.jobs]
    assert 0 < len(of.jobs) - len(expected) < len(of.jobs) and run.measures.ddls == len(expected)
