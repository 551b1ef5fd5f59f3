"""Why of a chosen region at a moment: everybody who may act on it is asked."""

from __future__ import annotations

import numpy as np

from ticdc_lab.simulate.pd.looking.decisions import Decision
from ticdc_lab.simulate.pd.looking.recording import Recording, Sample
from ticdc_lab.simulate.pd.merge_checker import Neighbours
from ticdc_lab.simulate.pd.regions import LEARNER, VOTER, Peer, Region
from ticdc_lab.simulate.pd.why import Answer, explain


def region_in(sample: Sample, region_id: int) -> Region | None:
    """Give a region as it was at a moment, None where there was none of this id."""
    found = np.flatnonzero(sample.placement.id == region_id)
    return _region(sample, int(found[0])) if len(found) else None


def _region(sample: Sample, i: int) -> Region:
    p = sample.placement
    slots = [k for k in range(p.store.shape[1]) if p.store[i, k] > 0]
    peers = tuple(Peer(k + 1, int(p.store[i, k]), LEARNER if p.learner[i, k] else VOTER) for k in slots)
    stores = frozenset(peer.store for peer in peers)
    pending = frozenset(int(p.store[i, k]) for k in slots if p.pending[i, k])
    end = p.start_key[i + 1] if i + 1 < len(p.start_key) else ""
    return Region(
        int(p.id[i]), peers, int(p.leader[i]), float(p.size[i]), 0, p.down & stores, pending, p.start_key[i], end
    )


def why_region(sample: Sample, region_id: int) -> tuple[Answer, ...]:
    """Ask every checker and scheduler what it would do with a region at a moment.

    Parameters
    ----------
    sample
        The moment.
    region_id
        The region; of one that is not there nothing is said.
    """
    region = region_in(sample, region_id)
    if region is None:
        return ()
    place = int(np.flatnonzero(sample.placement.id == region_id)[0])
    last = len(sample.placement.id) - 1
    before = _region(sample, place - 1) if place else None
    after = _region(sample, place + 1) if place < last else None
    return explain(sample.cluster, region, Neighbours(before, after), running=dict(sample.running))


def why_operator(recording: Recording, number: int) -> Decision | None:
    """Give the decision that an operator came from, by its number; None where it was asked for from outside."""
    life = next((f for f in recording.lives if f.number == number), None)
    if life is None:
        return None
    same = (
        d
        for d in recording.decisions
        if d.at_us == life.created_us
        and any(op.region == life.region and op.desc == life.desc for op in d.told.operators)
    )
    return next(same, None)
