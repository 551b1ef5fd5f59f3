"""Which tables move: by count, as released, by traffic; what it costs; and why nothing does."""

from __future__ import annotations

import pytest
from immutables import Map
from v2_cases import A, B, C, Owner, decided

from ticdc_lab.simulate.scheduler.balance import COUNT, NONE, POLICIES, RELEASED, TRAFFIC, Balance, Places, plan
from ticdc_lab.simulate.scheduler.roles import Drain, Rebalance

NOBODY = frozenset()


def moved(tables, balance, leaving=NOBODY, prefer=()):
    """Give (table, from, to) of the moves."""
    return [(m.key, m.source, m.to) for m in plan(tables, frozenset(leaving), balance, prefer).moves]


@pytest.mark.parametrize(
    ("sizes", "n_moves"),
    [((6, 0), 3), ((3, 3, 0), 2), ((4, 3), 0), ((5, 3), 1), ((7, 0, 0), 4), ((2, 2, 1), 0), ((1, 0), 0), ((0, 0), 0)],
)
def test_by_count_no_two_differ_by_more_than_one_and_the_fewest_move(sizes, n_moves):
    """What leaves is as little as possible, and leaves from the end."""
    keys = iter(range(100))
    tables = {f"c{i}": [next(keys) for _ in range(n)] for i, n in enumerate(sizes)}
    moves = moved(tables, Balance(COUNT))
    assert len(moves) == n_moves and all(to is None for _, _, to in moves)
    left = {c: len(keys) - sum(source == c for _, source, _ in moves) for c, keys in tables.items()}
    total, n = sum(sizes), len(sizes)
    assert all(x <= -(-total // n) for x in left.values())
    places = Places(left)
    for _ in moves:
        places.take(places.least(), 1)
    assert max(places.loads.values()) - min(places.loads.values()) <= 1


def test_as_released_no_capture_has_more_than_the_rounded_up_mean():
    """So that a fourth capture may stay empty where three have two of six tables each: v6.1 does nothing."""
    tables = {A: [1, 2], B: [3, 4], C: [5, 6], "capture-4": []}
    assert moved(tables, Balance(RELEASED)) == []
    assert len(moved(tables, Balance(COUNT))) == 1
    assert len(moved({A: [1, 3, 5], B: [2, 4, 6], C: []}, Balance(RELEASED))) == 2


def test_without_a_policy_only_drained_captures_give_tables():
    """none: tables stay."""
    assert moved({A: [1, 2, 3], B: []}, Balance(NONE)) == []
    assert moved({A: [1, 2, 3], B: [4]}, Balance(NONE), leaving={B}) == [(4, B, None)]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_settles(policy):
    """Where tables go, the next plan leaves them: a quota that `Places` does not use would move them without end."""
    balance = Balance(policy)
    for sizes in [(6, 0), (3, 3, 0), (4, 3), (5, 3), (7, 0, 0), (2, 2, 1), (1, 0), (0, 3, 3), (9, 1, 1, 1)]:
        keys = iter(range(100))
        tables = {f"c{i}": [next(keys) for _ in range(n)] for i, n in enumerate(sizes)}
        moves = plan(tables, NOBODY, balance).moves
        for m in moves:
            tables[m.source].remove(m.key)
        places = Places({c: sum(map(balance.weight, held)) for c, held in tables.items()})
        for m in moves:
            to = m.to or places.least()
            places.take(to, balance.weight(m.key))
            tables[to].append(m.key)
        assert plan(tables, NOBODY, balance).moves == (), (sizes, tables)


TRAFFICS = Map({1: 500, 2: 300, 3: 100, 4: 50})


def test_by_traffic_the_busiest_gives_to_the_idlest():
    """Rows a second are evened, not numbers of tables."""
    moves = moved({A: [1, 2, 3, 4], B: []}, Balance(TRAFFIC, TRAFFICS))
    loads = {A: 950, B: 0}
    for key, source, to in moves:
        loads[source] -= TRAFFICS[key]
        loads[to] += TRAFFICS[key]
    assert abs(loads[A] - loads[B]) <= 50 and moves[0] == (1, A, B)
    assert moved({A: [1], B: [2, 3, 4]}, Balance(TRAFFIC, TRAFFICS)) == [], "450 and 500 are even enough"


def test_a_move_must_be_worth_its_price():
    """The gap must shrink by more than a move costs."""
    tables = {A: [1], B: [2, 3, 4], C: []}
    cheap, dear = Balance(TRAFFIC, TRAFFICS, move_cost=150), Balance(TRAFFIC, TRAFFICS, move_cost=10_000)
    assert moved(tables, cheap) and moved(tables, dear) == []
    found = plan(tables, NOBODY, dear)
    assert found.because.startswith("nothing more is gained") and {c for c, _ in found.rejected} == {A, B, C}


def test_a_single_hot_table_does_not_travel_round():
    """Moving it would only turn the tables: nothing is gained."""
    assert moved({A: [1], B: []}, Balance(TRAFFIC, TRAFFICS)) == []


def test_at_most_so_many_moves():
    """The rest comes with the next rebalance."""
    assert len(moved({A: list(range(10)), B: []}, Balance(at_most=2))) == 2


@pytest.mark.parametrize("policy", [COUNT, RELEASED, TRAFFIC, NONE])
def test_a_drained_capture_ends_without_tables(policy):
    """No matter what the policy."""
    moves = moved({A: [1, 2], B: [3, 4], C: []}, Balance(policy), leaving={B})
    assert {k for k, source, _ in moves if source == B} == {3, 4}
    assert not any(to == B for _, _, to in moves)


def test_nowhere_to_go():
    """All captures are drained: nothing moves, and why."""
    found = plan({A: [1]}, frozenset({A}), Balance())
    assert (found.moves, found.because) == ((), "no capture may take tables")


def test_the_order_of_equals_is_the_callers():
    """By name, unless prefer shows otherwise."""
    assert Places({A: 1, B: 1}).least() == A and Places({A: 1, B: 1}, (B, A)).least() == B
    assert Places({A: 2, B: 1}, (A,)).least() == B


def test_every_decision_says_why_and_what_was_not_chosen():
    """A table that is placed: the loads of the others."""
    owner = Owner.synced({A: [1, 2], B: [3], C: []}, tables=[1, 2, 3, 4], balance=Balance(NONE))
    owner.tick()
    (found,) = decided(owner.outputs, "table:4")
    assert found.chosen == C and found.because == "the least loaded: 0 tables"
    assert found.rejected == ((A, "has 2 tables"), (B, "has 1 table"))


def test_doing_nothing_is_explained_once():
    """A rebalance that moves nothing shows for each capture why it keeps what it has."""
    owner = Owner.synced({A: [1], B: [2]})
    owner.ask(Rebalance())
    owner.tick()
    (found,) = decided(owner.outputs, "rebalance")
    assert found.chosen is None and found.because == "nothing to move: 2 tables on 2 captures"
    assert found.rejected == ((A, "has 1 of at most 1 table"), (B, "has 1 of at most 1 table"))
    owner.ask(Rebalance())
    owner.tick()
    assert decided(owner.outputs, "rebalance") == [], "the same is not said twice"


def test_an_owner_drains():
    """The drained capture gives all and gets none; the checkpoint proceeds after."""
    owner = Owner.synced({A: [1, 2], B: [3, 4], C: [5, 6]})
    owner.ask(Drain(B))
    owner.until_quiet(20)
    assert {c for c, _ in owner.where().values()} == {A, C} and owner.marks is not None
    owner.tables |= {7, 8}
    owner.until_quiet(20)
    assert {c for c, _ in owner.where().values()} == {A, C}


def test_an_owner_looks_at_the_balance_without_being_asked():
    """After check_us: a new owner does not know who came before it."""
    owner = Owner.synced({A: [1, 2, 3, 4], B: []}, balance=Balance(check_us=10_000))
    assert owner.tick() == []
    owner.at_us += 10_000
    assert len(owner.tick()) == 2


def test_an_owner_balances_traffic():
    """The planned target is kept until the table has left its capture."""
    owner = Owner.synced({A: [1, 2, 3, 4], B: []}, balance=Balance(TRAFFIC, TRAFFICS))
    owner.ask(Rebalance())
    owner.until_quiet(20)
    assert owner.where()[1] == (B, "running") and owner.where()[2] == (A, "running")


def test_a_single_hot_table_does_not_keep_others_from_giving():
    """The busiest capture can give nothing; the next one can."""
    assert moved({A: [1], B: [2, 3, 4], C: []}, Balance(TRAFFIC, TRAFFICS))[0] == (2, B, C)
