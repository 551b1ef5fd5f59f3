"""A stretch of messages that comes in at once does what the same messages do one after another."""

from __future__ import annotations

import random

import pytest
from planted_schedulers import planted
from v2_cases import A, B, Owner, Processor, added, announced, removed

from ticdc_lab.machines.machine import Now, ReceivedMany, one_by_one
from ticdc_lab.simulate.scheduler.messages import Checkpoint, DispatchTableResponse


def both_ways(driven, sender, messages):
    """Take a stretch at once and one by one; gives both results."""
    event, now = ReceivedMany(sender, tuple(messages)), Now(driven.at_us)
    return driven.machine.step(driven.state, event, now), one_by_one(driven.machine, driven.state, event, now)


@pytest.mark.parametrize("seed", range(30))
def test_a_processor_takes_a_stretch_of_orders(seed):
    """Fresh orders, known tables, doubles, old epochs, stale owners, removals, announcements."""
    chance = random.Random(seed)
    processor = Processor()
    epoch = processor.under("owner", 2)
    for table in range(3):
        processor.receive("owner", added(table, epoch, owner_rev=2))
    processor.poll(1000)
    processor.receive("owner", removed(1, epoch, owner_rev=2))
    messages = [added(t, epoch, 1000 + t, owner_rev=2) for t in range(10, 30)]
    odd = [added(1, epoch, owner_rev=2), added(2, epoch, owner_rev=2), added(10, epoch, owner_rev=2),
           added(40, epoch - 1, owner_rev=2), added(41, epoch, owner_rev=1), removed(2, epoch, owner_rev=2),
           announced(2), announced(3)]  # fmt: skip
    for message in chance.sample(odd, chance.choice([0, 1, 2])):
        messages.insert(chance.randrange(len(messages)), message)
    at_once, singly = both_ways(processor, "owner", messages)
    assert at_once[0] == singly[0] and sorted(at_once[1], key=str) == sorted(singly[1], key=str)


@pytest.mark.parametrize("seed", range(30))
def test_an_owner_takes_a_stretch_of_answers(seed):
    """Of tables that were added at two checkpoints, unknown ones, doubles, old epochs, watermarks between them."""
    chance = random.Random(seed)
    owner = Owner.synced({A: [90], B: [91]}, tables=range(1, 8))
    owner.receive(A, Checkpoint(chance.choice([900, 1000, 1500, 3000]), 3500))
    owner.tick(chance.choice([1000, 2000]), refused=(B,))
    owner.tables |= set(range(8, 15))
    owner.tick(2000)
    mine = [t for t, (capture, status) in owner.where().items() if capture == A and status == "adding"]
    messages = [DispatchTableResponse(t, 1) for t in mine]
    odd = [DispatchTableResponse(99, 1), DispatchTableResponse(mine[0], 7), Checkpoint(2500, 2600)]
    for message in chance.sample(odd, chance.choice([0, 1, 2])):
        messages.insert(chance.randrange(len(messages)), message)
    at_once, singly = both_ways(owner, A, messages)
    assert at_once == singly and len(mine) > 2


def test_a_stretch_of_an_unknown_capture_is_ignored():
    """As each message of it is."""
    at_once, singly = both_ways(Owner(A), B, [DispatchTableResponse(t, 1) for t in range(3)])
    assert at_once == singly and len(at_once[1]) == 3


def test_an_owner_that_takes_any_response_believes_a_former_life():
    """The planted bug that ordered links never show (v2_mutants.MUTANTS): an answer of an old epoch counts."""
    for bugs, status in (((), "adding"), (("takes_any_response",), "running")):
        owner = Owner.synced({A: []}, tables=[1])
        owner.tick()
        with planted(*bugs):
            owner.done(A, 1, epoch=7)
        assert owner.where()[1] == (A, status)
