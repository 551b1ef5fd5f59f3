"""The HTTP API as functions: what is accepted, what is refused and why, and what lists look like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from immutables import Map

from ticdc_lab.ddl_service import Listening, api
from ticdc_lab.errors import SetupError
from ticdc_lab.simulate.ddl_service import keys, records
from ticdc_lab.simulate.ddl_service.mirror import Mirror
from ticdc_lab.simulate.ddl_service.records import Cluster, Worker
from ticdc_lab.simulate.ddl_service.store_messages import Entry
from ticdc_lab.simulate.ddl_service.versions import Versions

SERVICE = Versions("v8.5.0", "v6.1.0")
KNOWN = {"one": Cluster("tikv://one:2379", "v6.5.0")}
SEED = b'{\n  "store_addr": "tikv://192.168.1.100:2379",\n}'


def test_the_body_of_the_proposal_is_taken_as_it_stands() -> None:
    """With the comma before the closing brace, which JSON does not have."""
    assert api.registration("cluster1", SEED, {}, SERVICE) == Cluster("tikv://192.168.1.100:2379", "v8.5.0")


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "no JSON"),
        (b"[]", 400, "no JSON object"),
        (b"{}", 400, "store_addr is missing"),
        (b'{"store_addr": 5}', 400, "store_addr is 5"),
        (b'{"store_addr": "http://a:1"}', 400, "no address"),
        (b'{"store_addr": "tikv://a"}', 400, "no address"),
        (b'{"store_addr": "tikv://a:99999"}', 400, "no address"),
        (b'{"store_addr": "tikv://a:1/../x"}', 400, "no address"),
        (b'{"store_addr": "tikv://a:1", "adress": ""}', 400, "unknown field 'adress'"),
        (b'{"store_addr": "tikv://a:1", "version": "new"}', 400, "is no version"),
        (b'{"store_addr": "tikv://a:1", "version": 6}', 400, "version is 6"),
        (b'{"store_addr": "tikv://a:1", "version": "v9.0.0"}', 409, "newer than the service"),
        (b'{"store_addr": "tikv://a:1", "version": "v5.4.0"}', 409, "too old"),
        (b'{"store_addr": "tikv://one:2379"}', 409, "registered as one"),
    ],
)
def test_what_is_wrong_with_a_registration_is_said(body: bytes, status: int, says: str) -> None:
    """A 4xx with what was found, and a hint."""
    with pytest.raises(api.ApiError, match=says) as caught:
        api.registration("two", body, KNOWN, SERVICE)
    assert (caught.value.status, bool(caught.value.hint)) == (status, True)


def test_a_cluster_may_be_updated_and_may_have_several_pds() -> None:
    """Its own address is no conflict."""
    body = b'{"store_addr": "tikv://one:2379,[::1]:2379", "version": "v7.1.0"}'
    assert api.registration("one", body, KNOWN, SERVICE) == Cluster("tikv://one:2379,[::1]:2379", "v7.1.0")
    assert api.registration("one", b'{"store_addr": "tikv://one:2379"}', KNOWN, SERVICE).version == "v8.5.0"


@pytest.mark.parametrize("text", ["", "a/b", "-a", "a b", "a" * 129, "ü", "."])
def test_a_bad_id_is_refused(text: str) -> None:
    """It becomes part of keys and of ids."""
    with pytest.raises(api.ApiError, match="no cluster id"):
        api.checked_id(text)


def test_lists_have_the_three_states() -> None:
    """Assigned and not yet running; running; owner. One without assignment is being scheduled."""

    def part(**values: Any) -> Map[str, Entry]:
        return Map({k: Entry(v if isinstance(v, str) else records.written(v), 1, 1) for k, v in values.items()})

    mirror = Mirror(
        1,
        (keys.REGISTERS, keys.WORKERS, keys.ASSIGNMENTS, keys.LEADER),
        (
            part(
                a=Cluster("tikv://a:1", "v6.5.0"), b=Cluster("tikv://b:1", "v6.5.0"), c=Cluster("tikv://c:1", "v6.5.0")
            ),
            part(n1=Worker("v8.5.0", (("a", "OWNER"),)), n2=Worker("v8.5.0")),
            part(a="n1", b="n2"),
            part(),
        ),
    )
    assert [c["schedule"] for c in api.clusters(mirror)] == [
        {"assigned_to": "n1", "status": "OWNER"},
        {"assigned_to": "n2", "status": "SCHEDULING"},
        {"assigned_to": "", "status": "SCHEDULING"},
    ]
    schedule = {"assigned_to": "n1", "status": "OWNER"}
    assert api.workers(mirror)[0] == {"id": "n1", "assignments": [{"cluster_id": "a", "schedule": schedule}]}


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
