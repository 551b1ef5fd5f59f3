"""Batches of commands: who may answer them, what they do, and what waits for a majority."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ticdc_lab.simulate.machine import Address, Send
from ticdc_lab.simulate.pipeline.kv_messages import (
    BatchCommands,
    BatchResponses,
    Command,
    Commit,
    EpochNotMatch,
    NotLeader,
    Prewrite,
    Refusal,
    RegionNotFound,
    Rollback,
)
from ticdc_lab.simulate.pipeline.tikv.percolator import Draft, commit, prewrite, rollback
from ticdc_lab.simulate.pipeline.tikv.region_changes import split_for_table
from ticdc_lab.simulate.pipeline.tikv.region_data import Data
from ticdc_lab.simulate.pipeline.tikv.replication import propose
from ticdc_lab.simulate.pipeline.tikv.store_state import Batch, Entry
from ticdc_lab.simulate.pipeline.tikv.turn import Turn
from ticdc_lab.simulate.scheduler.clock import ts_of


def take_batch(turn: Turn, sender: Address, message: BatchCommands) -> None:
    """Try the commands on what is proposed so far, and propose what comes of it, one entry a region.

    Also a refusal, and "this is done already", wait for a majority: a leader that is one no more may be wrong in both.
    """
    keeps, before_ts = turn.store.settings.keeps_versions, 0
    if keeps is not None:
        before_ts = ts_of(max(0, turn.now.at_us - 2 * turn.store.settings.store_down_us))
    splits_tables = turn.store.settings.splits_tables
    drafts: dict[int, tuple[int, Draft, list[int]]] = {}
    results: list[Refusal | None] = []
    for i, command in enumerate(message.commands):
        region, epoch = command[0], command[1]
        found = drafts.get(region)
        if found is None or found[0] != epoch:
            refusal = _refused(turn, command)
            if refusal is not None:
                results.append(refusal)
                continue
            found = drafts[region] = epoch, Draft(_data_of(turn, region), keeps, before_ts), []
            if splits_tables and type(command) is Prewrite and command.mutations:
                split_for_table(turn, found[1].data, command.mutations[0].key)
        _, draft, of = found
        of.append(i)
        results.append(_TRIED[type(command)](draft, command))
    if not drafts:
        turn.out.append(Send(sender, BatchResponses(message.id, tuple(results))))
        return
    number = turn.state.n_batches + 1
    batch = Batch(sender, message.id, tuple(results), frozenset(drafts))
    turn.state = turn.state._replace(batches=turn.state.batches.set(number, batch), n_batches=number)
    entries = [(r, Entry(0, d.finished(), tuple(d.rows), number, tuple(of))) for r, (_, d, of) in drafts.items()]
    propose(turn, entries)


_TRIED: Mapping[type, Callable[[Draft, Any], Refusal | None]] = MappingProxyType(
    {Prewrite: prewrite, Commit: commit, Rollback: rollback}
)


def _data_of(turn: Turn, region: int) -> Data:
    data = turn.state.peers[region].data
    assert data is not None
    return data


def _refused(turn: Turn, command: Command) -> NotLeader | EpochNotMatch | RegionNotFound | None:
    """Say why this store cannot take a command at all; what is proposed counts, a split from then on."""
    region = command.region
    peer = turn.state.peers.get(region)
    if peer is None:
        return RegionNotFound(region)
    data = peer.data
    if peer.led is None or data is None or data.merging is not None:
        return turn.not_leader(region)
    if data.epoch != command.epoch:
        return EpochNotMatch(region, (data.region(turn.state.address), *turn.parts_of(data)))
    return None
