"""Requests to a store, drawn at random: few keys and leases, so that they meet."""

from __future__ import annotations

from hypothesis import strategies as st

from ticdc_lab.ddl_core.store import (
    CREATE,
    MOD,
    VALUE,
    Compare,
    Delete,
    Grant,
    KeepAlive,
    Observe,
    Put,
    Revoke,
    Txn,
)

HOUR = 3600 * 1_000_000
KEYS = st.sampled_from(["/a/1", "/a/2", "/b/1"])
LEASES = st.integers(0, 3)
COMPARES = st.builds(Compare, KEYS, st.sampled_from([CREATE, MOD]), st.integers(0, 6)) | st.builds(
    Compare, KEYS, st.just(VALUE), st.sampled_from([None, "x", "y"])
)
OPS = st.builds(Put, KEYS, st.sampled_from(["x", "y"]), LEASES) | st.builds(Delete, KEYS)
TXNS = st.builds(
    Txn,
    st.just(("n", 1, "t")),
    st.lists(COMPARES, max_size=1).map(tuple),
    st.lists(OPS, min_size=1, max_size=3, unique_by=lambda op: op.key).map(tuple),
)
REQUESTS = (
    TXNS
    | st.builds(Grant, st.just(("n", 1, "g")), st.just(HOUR), st.just(0))
    | st.builds(Revoke, st.integers(1, 3))
    | st.builds(KeepAlive, st.just(("n", 1, "k")), st.integers(1, 3), st.just(0))
    | st.builds(
        Observe, st.tuples(st.sampled_from("no"), st.just(1), st.just("o")), st.just(("/a/",)), st.integers(1, 3)
    )
)
