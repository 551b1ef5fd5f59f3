"""Batches of commands: who may answer them, what they do, and what waits for a majority."""

from __future__ import annotations

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
)
from ticdc_lab.simulate.pipeline.tikv.cdc import observe
from ticdc_lab.simulate.pipeline.tikv.percolator import Draft, commit, prewrite, rollback
from ticdc_lab.simulate.pipeline.tikv.replication import propose
from ticdc_lab.simulate.pipeline.tikv.store_state import Batch, Entry
from ticdc_lab.simulate.pipeline.tikv.turn import Turn


def take_batch(turn: Turn, sender: Address, message: BatchCommands) -> None:
    """Try the commands on what is proposed so far, and propose what comes of it, one entry a region.

    Also a refusal, and "this is done already", wait for a majority: a leader that is one no more may be wrong in both.
    """
    keeps = turn.store.settings.keeps_versions
    drafts: dict[int, Draft] = {}
    of: dict[int, list[int]] = {}
    results: list[Refusal | None] = []
    for i, command in enumerate(message.commands):
        region = command.region
        draft = drafts.get(region)
        refusal: Refusal | None = _refused(turn, command)
        if refusal is None:
            if draft is None:
                data = turn.state.peers[region].data
                assert data is not None
                draft = drafts[region] = Draft(data, keeps)
                of[region] = []
            of[region].append(i)
            refusal = _tried(draft, command)
        results.append(refusal)
    if not drafts:
        turn.out.append(Send(sender, BatchResponses(message.id, tuple(results))))
        return
    number = turn.state.n_batches + 1
    batch = Batch(sender, message.id, tuple(results), frozenset(drafts))
    turn.state = turn.state._replace(batches=turn.state.batches.set(number, batch), n_batches=number)
    entries = [(r, Entry(0, d.finished(), tuple(d.rows), number, tuple(of[r]))) for r, d in drafts.items()]
    if turn.store.observes_early:
        for region, entry in entries:
            observe(turn, region, entry.rows)
    propose(turn, entries)


def _tried(draft: Draft, command: Command) -> Refusal | None:
    if type(command) is Prewrite:
        return prewrite(draft, command)
    if type(command) is Commit:
        return commit(draft, command)
    assert not isinstance(command, (Prewrite, Commit))
    return rollback(draft, command)


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
        return EpochNotMatch(region, (data.region(turn.state.address), *turn.regions_of(s.id for s in data.sprouts)))
    return None
