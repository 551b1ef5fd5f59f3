"""What is committed in the stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from ticdc_lab.simulate.pipeline.kv_messages import ROLLBACK
from ticdc_lab.simulate.pipeline.tables import Value
from ticdc_lab.simulate.pipeline.tikv.region_data import Data, read, records, value_at
from ticdc_lab.simulate.pipeline.tikv.store_state import TikvStoreState

Version: TypeAlias = "tuple[int, int, int, str, Value | None, Value | None]"
"""commit_ts, start_ts, key, op, value, old_value."""


def committed(state: TikvStoreState) -> Iterator[Version]:
    """Give all versions that are committed in the regions that a store leads, regions and keys in their order."""
    for data in sorted(led_here(state), key=lambda d: d.start):
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
        for commit_ts, start_ts, kind, older, stored in records(data.write[key]):
            if kind != ROLLBACK:
                value = read(data.default, key, start_ts, stored)
                yield commit_ts, start_ts, key, kind, value, value_at(older, key, data.default)


def led_here(state: TikvStoreState) -> list[Data]:
    """Give the regions that a store leads, as they are served."""
    return [p.led.applied for p in state.peers.values() if p.led is not None and p.led.applied is not None]
