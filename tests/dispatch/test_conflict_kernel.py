"""The kernel of conflict dispatch against plain Python, and its guarantees against a model consumer; no Spark."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from upstream import Change, Inconsistent, batch, consume, history, keys, reference, upstream

from ticdc_lab.dispatch.conflict_kernel import (
    BY_CONFLICT,
    HOME,
    KEY,
    OTHER_HOME,
    OTHER_KEY,
    REASON,
    TABLE,
    UNIT,
    Placer,
    keys_of,
    placed_batches,
    whole_units,
)
from ticdc_lab.errors import DispatchError

NS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
SEEDS = st.integers(0, 2**32 - 1)


def some_rows(r: random.Random) -> list[tuple[int, int, list[int] | None]]:
    """Sorted changes and DDL of up to three tables over few keys."""
    pool = [r.randrange(-(2**63), 2**63) for _ in range(r.choice((2, 8, 50)))]
    rows: list[tuple[int, int, list[int] | None]] = []
    for table in range(r.randrange(1, 4)):
        ts = 0
        for _ in range(r.randrange(1, 80)):
            ts += r.random() < 0.6
            own = None if r.random() < 0.05 else [r.choice(pool) ^ table for _ in range(r.choice((1, 1, 2, 4)))]
            rows.append((table, ts, own))
    return sorted(rows, key=lambda x: (*x[:2], x[2] is None))


def placed(rows: list[Any], r: random.Random, *, ns: tuple[int, ...] = NS, **how: Any) -> list[list[tuple[int, int]]]:
    """Targets and alignments per N, from batches of any size."""
    cuts = sorted({0, len(rows), *[r.randrange(len(rows) + 1) for _ in range(r.randrange(20))]})
    pieces = [batch(rows[a:b]) for a, b in pairwise(cuts)]
    found = [p for _, p in placed_batches(pieces, ns=ns, **how)]
    target, alignment = (np.concatenate([getattr(p, n) for p in found]) for n in ("target", "alignment"))
    return [list(zip(target[:, j].tolist(), alignment[:, j].tolist(), strict=True)) for j in range(len(ns))]


@settings(max_examples=150, deadline=None)
@given(SEEDS, st.sampled_from((80, 100, 10**6)))
def test_the_kernel_is_the_reference_for_every_n_at_once(seed: int, max_keys: int) -> None:
    """One pass over batches of any size gives for each N what thirty lines of Python give for it alone."""
    r = random.Random(seed)
    rows = some_rows(r)
    found = placed(rows, r, max_keys=max_keys)
    assert found == [reference(rows, n, max_keys) for n in NS]


def test_few_keys_known_at_a_time_is_the_reference_too() -> None:
    """`max_keys` counts distinct keys; it forces alignments at the same places no matter what the map still holds."""
    for seed in range(60):
        rows = some_rows(random.Random(seed))
        flags, last = [], None
        for t, ts, k in rows:
            same = last is not None and last[:2] == (t, ts) and k is not None and last[2] is not None
            flags.append(
                (0 if same else UNIT) | (TABLE if last is None or last[0] != t else 0) | (4 if k is None else 0)
            )
            last = (t, ts, k)
        starts, hashes = keys_of(batch(rows))
        ts = np.array([x[1] for x in rows])
        one = Placer.of(NS, max_keys=5).place(flags=np.array(flags, np.uint8), commit_ts=ts, starts=starts, keys=hashes)
        for j, n in enumerate(NS):
            got = list(zip(one.target[:, j].tolist(), one.alignment[:, j].tolist(), strict=True))
            assert got == reference(rows, n, 5), (seed, n)


def test_epochs_may_wrap_and_the_map_may_be_rebuilt() -> None:
    """Forgetting more often than the epoch can count, with more keys than the first map holds, changes nothing."""
    r = random.Random(3)
    pool = [r.randrange(-(2**63), 2**63) for _ in range(9_000)]
    rows = [(0, i // 2, [r.choice(pool)]) for i in range(60_000)]
    placer = Placer.of((2, 16))
    placer._bits = 29  # three bits are left for the epoch
    found = []
    for i in range(0, len(rows), 5_000):
        starts, hashes = keys_of(batch(rows[i : i + 5_000]))
        flags = np.where(np.arange(5_000) % 2, 0, UNIT).astype(np.uint8)
        flags[0] |= 0 if i else TABLE
        found.append(placer.place(flags=flags, commit_ts=np.arange(5_000), starts=starts, keys=hashes))
    for j, n in enumerate((2, 16)):
        got = [(int(t), int(a)) for p in found for t, a in zip(p.target[:, j], p.alignment[:, j], strict=True)]
        assert got == reference(rows, n, 10**9)
    assert max(a for _, a in got) > 8


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_a_unit_too_large_to_hold_stands_alone(seed: int) -> None:
    """Giants keep every key in one partition between alignments, are not torn, and do not depend on the batches."""
    r = random.Random(seed)
    rows = some_rows(r)
    found = [placed(rows, random.Random(i), ns=(4,), max_keys=3)[0] for i in range(3)]
    assert found[0] == found[1] == found[2]
    units: dict[Any, Any] = {}
    homes: dict[Any, int] = {}
    for (table, ts, own), place in zip(rows, found[0], strict=True):
        if own is not None:
            assert units.setdefault((table, ts), place) == place
            assert all(homes.setdefault((table, place[1], k), place[0]) == place[0] for k in own)


def sent(changes: list[Change], r: random.Random, n: int, **how: Any) -> list[tuple[Change, int, int]]:
    """Changes with their places."""
    ordered = sorted(changes, key=lambda c: (c.commit_ts, c.rank))
    rows = [(0, c.commit_ts, keys(c)) for c in ordered]
    return [(c, *p) for c, p in zip(ordered, placed(rows, r, ns=(n,), **how)[0], strict=True)] if rows else []


@settings(max_examples=150, deadline=None)
@given(SEEDS, st.sampled_from((2, 3, 16)), st.sampled_from((1, 4, 10**6)))
def test_a_consumer_that_waits_at_alignments_has_the_upstream_table(seed: int, n: int, max_keys: int) -> None:
    """No interleaving of listeners meets a duplicate key, an absent row or a torn transaction; the end is right."""
    r = random.Random(seed)
    changes = history(r, transactions=r.randrange(60))
    found = sent(changes, r, n, max_keys=max_keys)
    assert all(consume(random.Random(i), found) == upstream(changes) for i in range(5))


def outcome(changes: list[Change], found: list[tuple[Change, int, int]], seed: int, *, waits: bool) -> bool:
    """Whether the consumer comes to the upstream table."""
    try:
        return consume(random.Random(seed), found, waits=waits) == upstream(changes)
    except Inconsistent:
        return False


def test_a_consumer_that_does_not_wait_fails() -> None:
    """The same check sees it when alignments are ignored, when rows go by their id alone, and when a unit is torn."""
    deaf, by_id, torn = [], [], []
    for seed in range(40):
        r = random.Random(seed)
        changes = history(r, transactions=60)
        found = sent(changes, r, 4)
        assert outcome(changes, found, seed, waits=True)
        deaf.append(outcome(changes, found, seed, waits=False))
        hashed = [(c, (c.after or c.before)[0] % 4, 0) for c, _, _ in found]
        by_id.append(outcome(changes, hashed, seed, waits=True))
        torn.append(
            outcome(changes, [(c, p if i % 9 else p ^ 1, a) for i, (c, p, a) in enumerate(found)], seed, waits=True)
        )
    assert not all(deaf)
    assert not any(by_id)
    assert not any(torn)


def test_a_conflict_names_its_keys_and_partitions() -> None:
    """The barrier shows the two keys, where they were, and its reason; a DDL and `max_keys` report it too."""
    rows = [(0, 1, [8]), (0, 2, [9]), (0, 3, [8, 9]), (0, 3, None), *[(0, ts, [ts]) for ts in (4, 5, 6, 7)]]
    pieces = list(placed_batches([batch(rows)], ns=(4,), max_keys=2))
    barriers = np.concatenate([p.barriers for _, p in pieces])
    assert barriers[:, REASON].tolist() == [1, 3, 2]
    first = barriers[0]
    assert first[REASON] == BY_CONFLICT
    assert [first[KEY], first[HOME], first[OTHER_KEY], first[OTHER_HOME]] == [8, 0, 9, 1]
    assert [a for _, p in pieces for a in p.alignment[:, 0].tolist()] == [0, 0, 1, 1, 2, 2, 2, 3]


def test_units_are_never_cut() -> None:
    """Pieces begin at units, no matter what the batches, and lose nothing."""
    rows = [(0, ts, [ts]) for ts in (1, 1, 1, 2, 3, 3)]
    pieces = list(
        whole_units([batch(rows[:2]), batch([]), batch(rows[2:5]), batch(rows[5:])], unit="transaction", at_most=9)
    )
    assert [p["commit_ts"].to_pylist() for p, _ in pieces] == [[1, 1, 1, 2], [3, 3]]
    assert [f.tolist() for _, f in pieces] == [[3, 0, 0, 1], [1, 0]]


@pytest.mark.parametrize(("ns", "max_keys"), [((), 9), ((0,), 9), ((4, 65_537), 9), ((4,), 0)])
def test_what_cannot_be_is_refused(ns: tuple[int, ...], max_keys: int) -> None:
    """No partitions, too many, or no keys at all."""
    with pytest.raises(DispatchError, match="from 1 to 65536"):
        Placer.of(ns, max_keys=max_keys)
