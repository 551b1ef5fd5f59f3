"""The store: transactions, leases, observers, as etcd means them."""

from __future__ import annotations

from typing import Any

from ticdc_lab.ddl_core.store import (
    CREATE,
    MOD,
    VALUE,
    Compare,
    DdlStore,
    DdlStoreState,
    Delete,
    Done,
    Expired,
    Grant,
    Granted,
    Happened,
    KeepAlive,
    KeptAlive,
    Observe,
    Put,
    Revoke,
    Snapshot,
    Txn,
)
from ticdc_lab.machines.machine import Fired, Now, Received, Send

STORE = DdlStore((("/a/1", "one"),))


def asked(state: DdlStoreState, message: Any, at_us: int = 0, sender: str = "n") -> tuple[DdlStoreState, list[Any]]:
    """Send a request; give what the store sends."""
    state, outputs = STORE.step(state, Received(sender, message), Now(at_us))
    return state, [o.message for o in outputs if isinstance(o, Send)]


def begun() -> DdlStoreState:
    """A store with one lease of 10 µs."""
    return asked(STORE.start("s", Now(0))[0], Grant("g", 10, 0))[0]


def test_a_transaction_is_all_or_nothing() -> None:
    """Conditions on revisions and values; one that fails leaves everything as it was."""
    state = begun()
    good = (Compare("/a/1", CREATE, 1), Compare("/a/2", MOD, 0), Compare("/a/1", VALUE, "one"))
    state, answers = asked(state, Txn("t", good, (Put("/a/2", "two"), Delete("/a/1"))))
    assert answers == [Done("t", True, 2)]
    assert (dict(state.keys)["/a/2"].value, len(state.keys)) == ("two", 1)
    after, answers = asked(state, Txn("u", (Compare("/a/1", VALUE, "one"),), (Put("/a/3", ""),)))
    assert answers == [Done("u", False, 2)]
    assert after == state


def test_a_key_goes_with_its_lease() -> None:
    """Kept alive it stays, run out it goes, and observers hear of it."""
    state, _ = asked(begun(), Txn("t", (), (Put("/a/2", "two", 1),)))
    state, answers = asked(state, Grant("h", 1000, 0), sender="m")
    assert answers == [Granted("h", 2, 0)]
    state, answers = asked(state, Observe("w", ("/a/",), 2), sender="m")
    assert isinstance(answers[0], Snapshot)
    assert [key for key, _ in answers[0].entries] == ["/a/1", "/a/2"]
    state, answers = asked(state, KeepAlive("k", 1, 5), at_us=8)
    assert answers == [KeptAlive("k", 5)]
    state, outputs = STORE.step(state, Fired(1), Now(10))
    assert outputs == []
    state, outputs = STORE.step(state, Fired(1), Now(18))
    assert [o.message for o in outputs if isinstance(o, Send)] == [Happened("w", 3, (("/a/2", None),))]
    assert asked(state, KeepAlive("k", 1, 20))[1] == [Expired("k")]
    assert asked(state, Txn("t", (), (Put("/a/2", "two", 1),)))[1] == [Done("t", False, 3)]


def test_an_observer_hears_of_a_change_before_its_author_has_the_answer() -> None:
    """A client that has its answer has seen what it wrote; after its lease it hears nothing."""
    state, _ = asked(begun(), Observe("w", ("/a/",), 1))
    state, answers = asked(state, Txn("t", (), (Put("/a/2", "two"), Put("/b", ""))))
    assert [type(a) for a in answers] == [Happened, Done]
    assert [key for key, _ in answers[0].events] == ["/a/2"]
    state, answers = asked(state, Revoke(1))
    assert answers == [Expired("w")]
    assert [type(a) for a in asked(state, Txn("t", (), (Put("/a/2", "2"),)))[1]] == [Done]


def test_a_key_that_is_put_elsewhere_leaves_its_lease() -> None:
    """The lease of its last put counts."""
    state, _ = asked(begun(), Txn("t", (), (Put("/a/2", "two", 1),)))
    state, _ = asked(state, Txn("t", (), (Put("/a/2", "two"),)))
    state, _ = asked(state, Revoke(1))
    assert "/a/2" in state.keys
