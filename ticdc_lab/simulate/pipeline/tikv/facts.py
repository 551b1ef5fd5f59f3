"""What can be seen of a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from ticdc_lab.simulate.pipeline.kv_messages import ROLLBACK
from ticdc_lab.simulate.pipeline.observed import CfRow, HeldLock, RegionFacts
from ticdc_lab.simulate.pipeline.tables import Value
from ticdc_lab.simulate.pipeline.tikv.region_data import Data, read, records, value_at
from ticdc_lab.simulate.pipeline.tikv.store_state import TikvStoreState

Version: TypeAlias = "tuple[int, int, int, str, Value | None, Value | None]"
"""commit_ts, start_ts, key, op, value, old_value."""


def region_facts(state: TikvStoreState) -> tuple[RegionFacts, ...]:
    """Give the regions that a store leads and serves, in key order."""
    facts = []
    for region, peer in state.peers.items():
        data = peer.led.applied if peer.led else None
        if peer.led is None or data is None:
            continue
        streams = state.streams.get(region, ())
        facts.append(
            RegionFacts(
                region,
                state.name,
                data.start,
                data.end,
                data.epoch,
                peer.led.resolved_ts,
                _held_locks(data),
                tuple(sorted({s.address for s in streams})),
                tuple(sorted({s.address for s in streams if s.snapshot is not None})),
            )
        )
    return tuple(sorted(facts, key=lambda f: f.start))


def _held_locks(data: Data) -> tuple[HeldLock, ...]:
    keys: dict[tuple[int, int], list[int]] = {}
    for key, (start_ts, primary, *_) in data.locks.items():
        keys.setdefault((start_ts, primary), []).append(key)
    return tuple(HeldLock(*holder, tuple(sorted(held))) for holder, held in sorted(keys.items()))


def cf_rows(state: TikvStoreState, key: int) -> tuple[CfRow, ...]:
    """Give what the three column families hold of a key on the store that leads its region; else nothing.

    Returns: lock; default, newest first; write, newest first.
    """
    data = next((d for d in _served(state) if d.start <= key < d.end), None)
    if data is None:
        return ()
    rows: list[CfRow] = []
    lock, newest = data.locks.get(key), data.write.get(key)
    if lock is not None:
        rows.append(CfRow("lock", key, 0, lock[0], lock[2], None))
    found = ([(lock[0], lock[3])] if lock else []) + [(r[1], r[5]) for r in records(newest)]
    values = [(ts, read(data.default, key, ts, stored)) for ts, stored in found]
    shown = sorted(((ts, value) for ts, value in values if value is not None), key=lambda v: v[0], reverse=True)
    rows += [CfRow("default", key, ts, ts, "put", value) for ts, value in shown]
    rows += [CfRow("write", key, r[0], r[1], r[2], None) for r in records(newest)]
    return tuple(rows)


def committed(state: TikvStoreState) -> Iterator[Version]:
    """Give all versions that are committed in the regions that a store leads, regions and keys in their order."""
    for data in sorted(_served(state), key=lambda d: d.start):
        yield from _versions(data, ())


def committed_in(states: Iterable[TikvStoreState]) -> Iterator[Version]:
    """Give all versions that are committed upstream, each once, after any fault of the stores.

    A store that is down or cut off may still take itself for a leader of what has another leader or is divided by now:
    of regions that overlap the latest counts (epoch, then term). Without a leader, the newest that a peer has does.
    """
    found: list[tuple[bool, int, int, int, Data]] = []
    for state in states:
        for peer in state.peers.values():
            led = peer.led.applied if peer.led else None
            data = led or peer.data
            if data is not None:
                found.append((led is not None, data.epoch, peer.last_term, peer.log_index, data))
    taken: list[Data] = []
    for *_, data in sorted(found, key=lambda f: (*f[:4], f[4].id), reverse=True):
        over = tuple((t.start, t.end) for t in taken if t.start < data.end and data.start < t.end)
        if not any(start <= data.start and data.end <= end for start, end in over):
            yield from _versions(data, over)
            taken.append(data)


def _versions(data: Data, without: Sequence[tuple[int, int]]) -> Iterator[Version]:
    for key in sorted(data.write):
        if any(start <= key < end for start, end in without):
            continue
        for commit_ts, start_ts, kind, older, _, stored in records(data.write[key]):
            if kind != ROLLBACK:
                value = read(data.default, key, start_ts, stored)
                yield commit_ts, start_ts, key, kind, value, value_at(older, key, data.default)


def _served(state: TikvStoreState) -> list[Data]:
    return [p.led.applied for p in state.peers.values() if p.led is not None and p.led.applied is not None]
