"""Leases as both models of etcd keep them and their clients hold them."""

from __future__ import annotations

from ticdc_lab.machines.leases import Terms, granted, lives, prolonged, run_out
from ticdc_lab.machines.machine import Now, Wake


def test_a_holder_stops_before_the_store_can_give_its_lease_up() -> None:
    """It counts from when it asked, the store from when that came, be that at once."""
    terms = Terms(5_000_000, 1_000_000)
    lease, timer = granted("a", "a", terms.ttl_us, Now(700))
    assert (lease.holder, lease.expires_us, timer) == ("a", 5_000_700, Wake(5_000_000, "a"))
    assert terms.ends_us(700) == lease.expires_us - terms.margin_us
    assert 3 * terms.keep_alive_us <= terms.ttl_us


def test_a_lease_that_was_prolonged_outlives_its_first_timer() -> None:
    """And runs out with the next; those that run out together go in the order of their keys."""
    first, _ = granted(2, "b", 100, Now(0))
    other, _ = granted(1, "a", 100, Now(40))
    later, timer = prolonged(2, first, Now(40))
    assert run_out({2: first, 1: other}, Now(100)) == [2]
    assert run_out({2: later, 1: other}, Now(100)) == []
    assert timer == Wake(100, 2) and run_out({2: later, 1: other}, Now(140)) == [1, 2]


def test_lives_of_a_node_come_in_their_order() -> None:
    """The tenth behind the ninth; a node whose name begins alike is another one."""
    assert lives({"n.10", "n", "n.9", "nn.2", "n-2"}, "n") == ["n", "n.9", "n.10"]
