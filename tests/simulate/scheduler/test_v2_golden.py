"""The golden cases of v2, the design's protocol, and what tiflow's v6.1 tests of the owner show; see v2_cases.Owner."""

from __future__ import annotations

import pytest
from v2_cases import A, B, C, Owner, Processor, added, announced, broken, decided, ids, ignored, removed

from ticdc_lab.simulate.scheduler.balance import RELEASED, Balance
from ticdc_lab.simulate.scheduler.messages import Announce, Checkpoint, DispatchTable
from ticdc_lab.simulate.scheduler.roles import MoveTable, Rebalance

RELEASED_BALANCE = Balance(RELEASED)


def rebalancing():
    """Give an owner of six tables on two captures, after capture-3 has joined and its user has asked to rebalance."""
    owner = Owner.synced({A: [1, 3, 5], B: [2, 4, 6], C: []}, balance=RELEASED_BALANCE)
    owner.ask(Rebalance())
    return owner


def adding_on_b(table=1):
    """Give an owner while a table is being added on capture-2 and two others run on capture-1 and capture-2."""
    owner = Owner.synced({A: [2], B: [3]}, tables=[1, 2, 3])
    assert owner.tick(prefer=(B,)) == [(B, added(1))]
    return owner


def v2_01():
    """A fresh owner announces itself to everybody, dispatches nothing and lets the checkpoint stand."""
    owner = Owner(A, B, tables=[1, 2, 3])
    assert owner.tick() == [(A, announced()), (B, announced())]
    assert owner.marks is None and "has not synced" in owner.because
    assert owner.tick() == [], "an announcement that was sent is not sent again"
    assert owner.marks is None


def v2_02():
    """An announcement that the transport refused is sent later; a capture owes its Sync from then on only."""
    owner = Owner(A, B, tables=[1])
    assert owner.tick(refused=(A, B)) == []
    assert {s.sync for s in owner.state.captures.values()} == {"uninitialized"}
    assert owner.marks is None
    assert owner.tick(refused=(A,)) == [(B, announced())]
    assert (owner.state.captures[A].sync, owner.state.captures[B].sync) == ("uninitialized", "sync-sent")
    assert owner.marks is None
    assert owner.tick() == [(A, announced())]
    assert owner.state.captures[A].sync == "sync-sent" and owner.marks is None


def half_synced():
    """Give an owner whose capture-1 has reported that it runs 1, 2, 3, adds 4, 5 and removes 6, 7;
    capture-2 is silent.
    """
    owner = Owner(A, B, tables=[1, 2, 3, 4, 5], checkpoint_ts=1500)
    owner.tick()
    owner.sync(A, running=[1, 2, 3], adding=[4, 5], removing=[6, 7])
    return owner


def v2_03():
    """One Sync of two does not let the checkpoint proceed, nor anything be dispatched; its records are kept."""
    owner = half_synced()
    assert owner.tick() == [] and owner.marks is None
    assert owner.because.startswith(f"{B} has not synced")
    assert [s for _, s in owner.where().values()] == ["running"] * 3 + ["adding"] * 2 + ["removing"] * 2


def v2_04():
    """The checkpoint proceeds when all have synced and nothing is in flight: to the owner's own at that time."""
    owner = half_synced()
    owner.sync(B)
    owner.done(A, 4)
    owner.done(A, 5)
    assert owner.tick() == [] and owner.marks is None
    owner.done(A, 6)
    assert owner.tick() == [] and owner.marks is None
    owner.done(A, 7)
    assert owner.tick() == [] and owner.marks == (1500, 1500)


def v2_05():
    """A refused dispatch leaves no record and comes again."""
    owner = Owner.synced({A: [], B: []}, tables=[1, 2, 3])
    assert owner.tick(refused=(A, B)) == []
    assert owner.where() == {} and owner.marks is None
    assert owner.tick(refused=(B,)) == [(A, added(1))], "the first one that is refused ends the tick"
    assert owner.marks is None and owner.where() == {1: (A, "adding")}
    assert [m.id for _, m in owner.tick()] == [2, 3]
    assert owner.marks is None


def v2_06():
    """Tables go to captures evenly; the order carries the global checkpoint and the capture's epoch."""
    owner = Owner(A, B, tables=[1, 2, 3])
    owner.tick()
    owner.sync(A, epoch=11)
    owner.sync(B, epoch=12)
    assert owner.tick() == [(A, added(1, 11)), (B, added(2, 12)), (A, added(3, 11))]
    assert owner.marks is None


def v2_07():
    """Nothing is sent while orders are not answered, and the checkpoint stands until the last one is."""
    owner = Owner.synced({A: [], B: []}, tables=[1, 2, 3])
    owner.tick()
    owner.done(A, 1)
    owner.done(B, 2)
    assert owner.tick() == [] and owner.marks is None
    assert owner.because == f"table 3 is adding on {A}"
    owner.done(A, 3)
    assert owner.tick() == [] and owner.marks == (1000, 1000)


def v2_08():
    """The watermarks are the lowest of what captures with tables report, each of the two for itself."""
    owner = Owner.synced({A: [1, 3], B: [2]})
    owner.receive(A, Checkpoint(1100, 1500))
    owner.receive(B, Checkpoint(1200, 1300))
    owner.tick(1000)
    assert owner.marks == (1100, 1300)
    owner.receive(A, Checkpoint(1400, 1600))
    owner.tick(1100)
    assert owner.marks == (1200, 1300)


def v2_09():
    """A capture that is not alive changes no watermark."""
    owner = Owner.synced({A: [1, 3], B: [2]}, marks={A: (1300, 1500), B: (1400, 1600)})
    assert ignored(owner.receive(C, Checkpoint(1000, 1000)))
    owner.tick(1300)
    assert owner.marks == (1300, 1500)


def v2_10():
    """What a capture reports before it has synced is dropped: then it counts with what the owner had of it."""
    owner = Owner.synced({A: [1, 3, 5]}, tables=[1, 2, 3, 4, 5, 6], marks={A: (1300, 1500)})
    owner.captures = frozenset({A, B})
    owner.tick(1500)
    assert ignored(owner.receive(B, Checkpoint(1000, 1000)))
    assert owner.tick(1500) == [] and owner.marks is None
    owner.sync(B, running=[2, 4, 6])
    owner.tick(1500)
    assert owner.marks == (1300, 1500)


def v2_11():
    """The tables of a capture that is gone are dispatched again, from the global checkpoint."""
    owner = Owner.synced({A: [1, 3], B: [2]})
    owner.tick()
    owner.captures = frozenset({A})
    assert owner.tick(1500) == [(A, added(2, start_ts=1500))]
    assert owner.marks is None
    assert owner.where()[2] == (A, "adding") and B not in owner.state.captures


def v2_12():
    """A Sync replaces all that was known of its sender: what a restarted processor lost is dispatched again."""
    owner = Owner.synced({A: [1, 3], B: [2]})
    owner.tick()
    owner.sync(B, epoch=9)
    assert owner.tick(1500) == [(B, added(2, 9, 1500))]
    assert owner.marks is None
    assert ignored(owner.done(B, 2, epoch=1)), "an answer of its former life is void"
    assert owner.where()[2] == (B, "adding")
    owner.done(B, 2, epoch=9)
    assert owner.tick() == [] and owner.marks == (1000, 1000)


def v2_13():
    """The target of a move dies: the table goes to one that lives, with that one's other tables."""
    owner = Owner.synced({A: [1, 3], B: [2]})
    owner.ask(MoveTable(1, B))
    assert owner.tick(1300) == [(A, removed(1, start_ts=1300))] and owner.marks is None
    owner.captures = frozenset({A})
    owner.done(A, 1)
    assert owner.tick(1300) == [(A, added(1, start_ts=1300)), (A, added(2, start_ts=1300))]
    assert owner.marks is None and not owner.state.moves


def v2_14():
    """A rebalance that is refused is not forgotten; it removes down to the rounded up mean, then adds as usual."""
    owner = rebalancing()
    assert owner.tick(refused=(A, B)) == [] and owner.marks is None
    assert owner.state.needs_rebalance
    sent = owner.tick()
    assert len(sent) == 2 and all(m.is_delete for _, m in sent) and {to for to, _ in sent} == {A, B}
    assert not owner.state.needs_rebalance and owner.marks is None
    for to, message in sent:
        owner.done(to, message.id)
    assert [(to, m.id, m.is_delete) for to, m in owner.tick()] == [(C, m.id, False) for _, m in sent]


def v2_15():
    """A rebalance waits for what is in flight, and reports it."""
    owner = Owner.synced({A: [1, 3, 5], B: [2, 4, 6], C: []}, tables=range(1, 8), balance=RELEASED_BALANCE)
    owner.tick(prefer=(C,))
    assert owner.where()[7] == (C, "adding")
    owner.ask(Rebalance())
    assert owner.tick() == [] and owner.marks is None and owner.state.needs_rebalance
    owner.done(C, 7)
    owner.tables = frozenset(range(1, 8))
    assert owner.tick() == [], "three tables are ceil(7 / 3), so that nothing moves"
    owner = Owner.synced({A: [1, 3, 5], B: [2, 4, 6], C: []}, tables=range(1, 7), balance=RELEASED_BALANCE)
    owner.sync(C, adding=[7])
    owner.tables = frozenset(range(1, 8))
    owner.ask(Rebalance())
    assert owner.tick() == [] and decided(owner.outputs, "rebalance")[0].because.startswith("postponed: table 7")
    owner.tables = frozenset(range(1, 7))
    owner.done(C, 7)
    assert [(to, m.id, m.is_delete) for to, m in owner.tick()] == [(C, 7, True)]
    owner.done(C, 7)
    assert sorted((to, m.is_delete) for to, m in owner.tick()) == [(A, True), (B, True)]


def v2_16():
    """A user's move of a table that is being added waits for the add, then removes it, then adds it at the target."""
    owner = adding_on_b()
    owner.ask(MoveTable(1, A))
    assert owner.tick() == [] and owner.marks is None
    owner.done(B, 1)
    assert owner.tick() == [(B, removed(1))] and owner.marks is None
    owner.done(B, 1)
    assert owner.tick(prefer=(B,)) == [(A, added(1))], "the target is the user's, not the balancer's"
    owner.done(A, 1)
    assert owner.until_quiet() == [] and owner.where()[1] == (A, "running")


def v2_17():
    """A capture that joins while orders are in flight gets its share once they are done."""
    owner = Owner.synced({A: [], B: []}, tables=[1, 2, 3, 4])
    assert len(owner.tick()) == 4
    owner.captures |= {C}
    assert owner.tick() == [(C, announced())]
    owner.sync(C)
    assert owner.tick() == [] and owner.marks is None
    for table, (capture, _) in owner.where().items():
        owner.done(capture, table)
    orders = owner.until_quiet()
    assert [(to == C, is_delete) for to, _, is_delete in orders] == [(False, True), (True, False)]
    assert owner.marks == (1000, 1000)


def v2_18():
    """An answer with a wrong epoch, of an unknown capture or for an unknown table is void; of a wrong one: broken."""
    owner = adding_on_b()
    for sender, table, epoch in ((B, 1, 7), ("capture-9", 1, 1), (B, 99, 1)):
        outputs = owner.done(sender, table, epoch)
        assert ignored(outputs) and not broken(outputs)
        assert owner.where()[1] == (B, "adding")
    assert broken(owner.done(A, 1)) == ["Responses Match Orders"]
    assert broken(Owner.synced({A: [1]}).done(A, 1)) == ["Responses Match Orders"], "nothing was asked for"


def v2_19():
    """A Sync of a capture that etcd has not shown is ignored."""
    owner = Owner(tables=[1, 2, 3])
    assert ignored(owner.sync(A, running=[1, 2]))
    assert owner.tick() == [] and owner.marks is None and owner.where() == {}


def v2_23():
    """One revision has one owner."""
    processor = Processor()
    processor.receive("owner-a", announced(5))
    assert broken(processor.receive("owner-b", announced(5))) == ["One Owner a Revision"]
    assert broken(processor.receive("owner-b", added(1, owner_rev=5))) == ["One Owner a Revision"]
    assert broken(processor.receive("owner-b", announced(6))) == []


CASES = {f.__name__.replace("_", "-"): f for f in list(globals().values()) if getattr(f, "__name__", "")[:3] == "v2_"}


@pytest.mark.parametrize("case", sorted(CASES))
def test_golden(case):
    """Every case of v2.jsonl, and the ones of the same numbering that tiflow's tests show besides."""
    CASES[case]()


def test_every_golden_case_is_driven():
    """No line of v2.jsonl is without a function."""
    assert set(ids()) <= set(CASES)


def test_a_table_that_is_not_wanted_is_removed():
    """Tables that are not in the list any more are stopped; the checkpoint waits for that."""
    owner = Owner.synced({A: [1, 3], B: [2]}, tables=[1, 2])
    assert owner.tick() == [(A, removed(3))] and owner.marks is None
    assert owner.tick() == []
    owner.done(A, 3)
    assert owner.tick() == [] and owner.marks == (1000, 1000)


def test_a_refused_removal_comes_again():
    """A removal that the transport refused leaves the record as it was."""
    owner = Owner.synced({A: [1, 3], B: [2]}, tables=[1, 2])
    assert owner.tick(refused=(A,)) == [] and owner.where()[3] == (A, "running") and owner.marks is None
    assert owner.tick() == [(A, removed(3))]


def test_a_table_dropped_while_it_is_added_is_removed_afterwards():
    """Operations in flight are not interrupted."""
    owner = adding_on_b()
    owner.tables -= {1}
    assert owner.tick() == [] and owner.marks is None
    owner.done(B, 1)
    assert owner.tick() == [(B, removed(1))]


def test_a_removed_table_that_is_wanted_again_is_added_afterwards():
    """Operations in flight are not interrupted."""
    owner = Owner.synced({A: [1]}, tables=[])
    assert owner.tick() == [(A, removed(1))]
    owner.tables = frozenset({1})
    assert owner.tick() == [] and owner.marks is None
    owner.done(A, 1)
    assert owner.tick() == [(A, added(1))]


def test_a_capture_without_tables_does_not_hold_the_watermarks():
    """The report of a capture that replicates nothing means nothing."""
    owner = Owner.synced({A: [1, 2], B: []}, marks={A: (1300, 1500), B: (1100, 1100)}, balance=Balance("none"))
    owner.tick(1000)
    assert owner.marks == (1300, 1500)


def test_a_capture_counts_with_the_checkpoint_of_the_tick_that_saw_it_first():
    """Not with the one of the tick in which it synced, and not with 0."""
    owner = Owner(A, tables=[1], checkpoint_ts=1500)
    owner.tick()
    owner.sync(A, running=[1])
    owner.tick(2000)
    assert owner.marks == (1500, 1500)


def test_manual_move_while_nothing_is_in_flight():
    """Remove, wait, add at the target (tiflow TestManualMoveTable)."""
    owner = Owner.synced({A: [1, 3], B: [2]})
    owner.ask(MoveTable(1, B))
    assert owner.tick() == [(A, removed(1))] and owner.marks is None
    assert owner.tick() == [] and owner.marks is None
    owner.done(A, 1)
    assert owner.tick() == [(B, added(1))] and owner.marks is None
    owner.done(B, 1)
    assert owner.until_quiet() == [] and owner.where()[1] == (B, "running")


def test_the_source_of_a_move_dies():
    """The table still goes where the user wants it."""
    owner = Owner.synced({A: [1, 3], B: [2], C: [4]})
    owner.ask(MoveTable(1, C))
    assert owner.tick() == [(A, removed(1))]
    owner.captures -= {A}
    sent = owner.tick(1700, prefer=(B,))
    assert (C, added(1, start_ts=1700)) in sent and {m.id for _, m in sent} == {1, 3}


@pytest.mark.parametrize(("table", "to"), [(1, "capture-9"), (99, B)])
def test_a_move_that_cannot_be_made_is_given_up(table, to):
    """To nowhere, or of no table: the owner shows why and forgets it (tiflow handleMoveTableJobs)."""
    owner = Owner.synced({A: [1], B: [2]})
    owner.ask(MoveTable(table, to))
    assert owner.tick() == [] and owner.marks == (1000, 1000)
    assert decided(owner.outputs, f"move:{table}")[0].chosen is None and not owner.state.moves


def test_a_second_move_of_a_table_is_ignored_until_the_first_is_done():
    """As tiflow's moveTableManager.Add."""
    owner = Owner.synced({A: [1, 3], B: [2], C: [4]})
    owner.ask(MoveTable(1, B))
    (answer,) = owner.ask(MoveTable(1, C))
    assert answer.chosen is None and B in answer.because
    assert owner.until_quiet()[:2] == [(A, 1, True), (B, 1, False)]


def test_a_refused_move_comes_again():
    """The removal is retried."""
    owner = Owner.synced({A: [1, 3], B: [2]})
    owner.ask(MoveTable(1, B))
    assert owner.tick(refused=(A,)) == [] and owner.marks is None and owner.where()[1] == (A, "running")
    assert owner.tick() == [(A, removed(1))]


@pytest.mark.parametrize("policy", ["count", "released"])
def test_a_capture_goes_offline_and_the_rest_is_rebalanced(policy):
    """No matter what comes and goes, captures end with equal numbers, and the checkpoint proceeds."""
    owner = Owner.synced({A: [1, 2], B: [3, 4], C: [5, 6]}, balance=Balance(policy))
    owner.tick()
    owner.captures -= {B}
    orders = owner.until_quiet()
    assert {table for _, table, _ in orders} == {3, 4}
    assert owner.state.tables.count_on(A) == owner.state.tables.count_on(C) == 3
    assert owner.marks is not None


def test_the_owner_never_stops_waiting_for_an_incompatible_capture():
    """A processor of another major version holds everything, and the owner shows that it does."""
    owner = Owner(A, tables=[1])
    owner.tick()
    assert "not compatible" in ignored(owner.sync(A, version="v5.4.0"))[0]
    assert owner.tick() == [] and owner.marks is None and "incompatible" in owner.because


def test_two_captures_that_report_one_table_are_a_violation():
    """The real owner panics: duplicate table tasks."""
    owner = Owner(A, B, tables=[1])
    owner.tick()
    owner.sync(A, running=[1])
    assert broken(owner.sync(B, adding=[1])) == ["No Double Write"]


def test_two_tables_in_one_sync_are_in_one_list_only():
    """A Sync that contradicts itself is one too."""
    owner = Owner(A, tables=[1])
    owner.tick()
    assert broken(owner.sync(A, running=[1], removing=[1])) == ["No Double Write"]


def test_a_ddl_barrier_holds_both_watermarks():
    """Neither passes the barrier; what is below it is as it was."""
    owner = Owner.synced({A: [1]}, marks={A: (1300, 1500)})
    owner.tick(barrier_ts=1400)
    assert owner.marks == (1300, 1400)
    owner.tick(barrier_ts=1200)
    assert owner.marks == (1200, 1200)


def test_a_table_added_later_lowers_what_its_capture_reported_before():
    """The capture's last report did not count it: the checkpoint may not pass the table's start."""
    owner = Owner.synced({A: [1]}, tables=[1, 2], marks={A: (1900, 1950)})
    assert owner.tick(1000) == [(A, added(2))]
    owner.done(A, 2)
    owner.tick(1000)
    assert owner.marks == (1000, 1000) and "table 2" in owner.because


def test_all_of_the_owners_messages_carry_its_revision():
    """Announce and DispatchTable: so that the processors can distinguish owners."""
    owner = Owner(A, tables=[1, 2], owner_rev=17)
    messages = [m for _, m in owner.tick()]
    owner.sync(A, running=[3])
    messages += [m for _, m in owner.tick()]
    assert {type(m) for m in messages} == {Announce, DispatchTable}
    assert {m.owner_rev for m in messages} == {17}
