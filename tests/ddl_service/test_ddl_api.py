"""The HTTP API as functions: what is accepted, what is refused and why, and what lists look like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from immutables import Map

from ticdc_lab.ddl_core import keys, records, registering
from ticdc_lab.ddl_core.connection import Mirror
from ticdc_lab.ddl_core.records import ClusterRecord, WorkerRecord
from ticdc_lab.ddl_core.settings import Versions
from ticdc_lab.ddl_core.store import StoredEntry
from ticdc_lab.ddl_service import Listening, api
from ticdc_lab.ddl_service.api import Assignment, Schedule, WorkerNode
from ticdc_lab.errors import SetupError

SERVICE = Versions("v8.5.0", "v6.1.0")
KNOWN = {"one": ClusterRecord("tikv://one:2379", "v6.5.0")}
SEED = b'{\n  "store_addr": "tikv://192.168.1.100:2379",\n}'


def test_the_body_of_the_proposal_is_taken_as_it_stands() -> None:
    """With the comma before the closing brace, which JSON does not have."""
    address = "tikv://192.168.1.100:2379"
    assert registered("cluster1", SEED, {}) == ClusterRecord(address, "v8.5.0", address)


def registered(name: str, body: bytes, known: dict[str, ClusterRecord]) -> ClusterRecord:
    """What a PUT writes where these clusters are registered."""
    entries = [(keys.REGISTERS + c, StoredEntry(records.written(own), 1, 1)) for c, own in known.items()]
    decision = registering.decided(api.registration(name, body), tuple(entries), SERVICE)
    written = decision if isinstance(decision, registering.WishWrite) else api.well(decision)
    assert written.cluster is not None
    return written.cluster


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "no JSON"),
        (b"[]", 400, "Expected `object`, got `array`"),
        (b"{}", 400, "missing required field `store_addr`"),
        (b'{"store_addr": 5}', 400, r"Expected `str`, got `int` - at `\$.store_addr`"),
        (b'{"store_addr": "http://a:1"}', 400, "no address"),
        (b'{"store_addr": "tikv://a"}', 400, "no address"),
        (b'{"store_addr": "tikv://a:99999"}', 400, "no address"),
        (b'{"store_addr": "tikv://a:1/../x"}', 400, "no address"),
        (b'{"store_addr": "tikv://a:1", "adress": ""}', 400, "unknown field `adress`"),
        (b'{"store_addr": "tikv://a:1", "version": "new"}', 400, "is no version"),
        (b'{"store_addr": "tikv://a:1", "version": 6}', 400, r"got `int` - at `\$.version`"),
        (b'{"store_addr": "tikv://a:1", "version": "v9.0.0"}', 409, "newer than the service"),
        (b'{"store_addr": "tikv://a:1", "version": "v5.4.0"}', 409, "too old"),
        (b'{"store_addr": "tikv://one:2379"}', 409, "registered as one"),
        (b'{"store_addr": "tikv://two:1,ONE:2379"}', 409, "one:2379 is registered as one"),
        (b'{"store_addr": "tikv://[::1"}', 400, "no address"),
        (b'{"store_addr": "tikv://a:1#x"}', 400, "no address"),
        ('{"store_addr": "tikv://a:\u0661"}'.encode(), 400, "no address"),
        (b'{"store_addr": "tikv://a:1", "version": "v' + b"1" * 5000 + b'.1.1"}', 400, "is no version"),
    ],
)
def test_what_is_wrong_with_a_registration_is_said(body: bytes, status: int, says: str) -> None:
    """A 4xx with what was found, and a hint."""
    with pytest.raises(api.ApiError, match=says) as caught:
        registered("two", body, KNOWN)
    assert (caught.value.status, bool(caught.value.hint)) == (status, True)


def test_a_cluster_may_be_updated_and_may_have_several_pds() -> None:
    """Its own address is no conflict."""
    body = b'{"store_addr": "tikv://one:2379,[::1]:2379", "version": "v7.1.0"}'
    assert registered("one", body, KNOWN) == ClusterRecord("tikv://one:2379,[::1]:2379", "v7.1.0", "tikv://one:2379")


def test_an_update_without_a_version_leaves_the_version_as_it_is() -> None:
    """Only a new cluster is given the service's own."""
    body = b'{"store_addr": "tikv://one:2379"}'
    assert registered("one", body, KNOWN).version == "v6.5.0"
    assert registered("one", body, {}).version == "v8.5.0"


def test_one_cluster_has_one_address_however_it_is_written() -> None:
    """Else it could be registered twice, and have two owners in two namespaces."""
    for expected, *spellings in (
        ("one:2379", "TIKV://One:02379/", "tikv://one:2379,one:2379", "tikv://one.:2379"),
        (
            "127.0.0.1:1",
            "tikv://127.1:1",
            "tikv://127.0.0.1.:1",
            "tikv://0x7f.0.0.1:1",
            "tikv://2130706433:1",
            "tikv://[::ffff:127.0.0.1]:1",
        ),
        ("[::1]:1", "tikv://[0:0:0:0:0:0:0:1]:1", "tikv://[::0001]:1", "tikv://[0::1]:1"),
    ):
        for spelling in spellings:
            body = f'{{"store_addr": "{spelling}"}}'.encode()
            assert registered("new", body, {}).store_addr == f"tikv://{expected}"


@pytest.mark.parametrize(
    "host", ["999.999.999.999", "a..b", "1.2.3.4.5", "[1:2]", "[::1::]", "-a", "a" * 64, ".", "a-."]
)
def test_what_is_no_host_is_refused(host: str) -> None:
    """Nonsense would be an address of its own, and never conflict with what was meant."""
    with pytest.raises(api.ApiError, match="is no address"):
        api.registration("c", f'{{"store_addr": "tikv://{host}:1"}}'.encode())


def test_so_many_pds_fit_into_a_transaction() -> None:
    """Each has a key in it; etcd takes 128 operations."""
    hosts = ",".join(f"h{i}:1" for i in range(api.MOST_PDS + 1))
    with pytest.raises(api.ApiError, match="has 33 PDs"):
        api.registration("c", f'{{"store_addr": "tikv://{hosts}"}}'.encode())


@pytest.mark.parametrize("text", ["", "a/b", "-a", "a b", "a" * 129, "ü", "."])
def test_a_bad_id_is_refused(text: str) -> None:
    """It becomes part of keys and of ids."""
    with pytest.raises(api.ApiError, match="no cluster id"):
        api.checked_id(text)


def test_lists_have_the_three_states() -> None:
    """Assigned and not yet running; running; owner. One without assignment is being scheduled."""

    def part(**values: Any) -> Map[str, StoredEntry]:
        return Map({k: StoredEntry(v if isinstance(v, str) else records.written(v), 1, 1) for k, v in values.items()})

    mirror = Mirror(
        1,
        (keys.REGISTERS, keys.WORKERS, keys.ASSIGNMENTS, keys.LEADER),
        (
            part(
                a=ClusterRecord("tikv://a:1", "v6.5.0"),
                b=ClusterRecord("tikv://b:1", "v6.5.0"),
                c=ClusterRecord("tikv://c:1", "v6.5.0"),
            ),
            part(n1=WorkerRecord("v8.5.0", (("a", "OWNER"),)), n2=WorkerRecord("v8.5.0")),
            part(a="n1", b="n2"),
            part(),
        ),
    )
    assert [c.schedule for c in api.clusters(mirror)] == [
        Schedule("n1", "OWNER"), Schedule("n2", "SCHEDULING"), Schedule("", "SCHEDULING"),
    ]  # fmt: skip
    assert api.workers(mirror)[0] == WorkerNode("n1", (Assignment("a", Schedule("n1", "OWNER")),))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example"])
def test_other_hosts_are_let_in_only_where_something_keeps_strangers_out(host: str) -> None:
    """A shared secret, or certificates of callers; TLS alone hides, and lets everybody in."""
    with pytest.raises(SetupError, match="can be reached from other hosts"):
        Listening(host)
    with pytest.raises(SetupError, match="can be reached from other hosts"):
        Listening(host, certificate=Path("c"), key=Path("k"))
    assert Listening(host, secret="s").host == host
    assert Listening(host, certificate=Path("c"), key=Path("k"), callers=Path("ca")).host == host
    with pytest.raises(SetupError, match="certificate and its key"):
        Listening("127.0.0.1", certificate=Path("c"))
    assert Listening("127.0.0.1").is_local
    assert Listening("::1").is_local
