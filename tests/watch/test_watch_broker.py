"""A watch of a topic in a real broker: what the broker does to a topic is read, named or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker import Broker, cluster
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]
from conftest import golden
from topics import QUIET, create, delete, expire, recorded, send, until_seen

from ticdc_lab.cli import main
from ticdc_lab.errors import SourceError
from ticdc_lab.watch import running, silences
from ticdc_lab.watch.folder import WatchFolder
from ticdc_lab.watch.running import Watch, unsettled

LOG = "messages_canal-json-tidb_small-dup-restart.jsonl.gz"


def watched(source: object, state: Path) -> Watch:
    """A watch that has gone to its end."""
    watch = Watch(str(source), str(state), once=True)
    watch.run()
    return watch


def sentences(watch: Watch) -> list[tuple[str, str, int | None, int | None]]:
    """What was found, and where."""
    found = unsettled(watch.findings.values())
    return sorted((f.guarantee, f.severity, f.partition, f.offset) for f in found)


def test_a_topic_that_changes_under_a_watch(broker: Broker, tmp_path: Path) -> None:
    """Expired, widened and made again between two runs; the rest is found as in the recording, whole or in parts."""
    messages, servers = recorded(golden(LOG)), f"127.0.0.1:{broker.plain}"
    n = max(m["partition"] for m in messages) + 1
    create(servers, "watched", n)
    try:
        send(servers, "watched", messages[: len(messages) // 2])
        source, state = broker.url("watched"), tmp_path / "state"
        half = watched(source, state).view.counts.messages
        send(servers, "watched", messages[len(messages) // 2 :])
        both = watched(source, state)
        assert half == len(messages) // 2 and both.view.counts.messages == len(messages)
        assert sentences(both) == sentences(watched(golden(LOG), tmp_path / "recording"))

        first = [m for m in messages if m["partition"] == 0]
        send(servers, "watched", first[:20])
        expire(servers, "watched", 0, len(first) + 15)
        lost = watched(source, state)
        assert {p: seen.lost for (_, p), seen in lost.view.partitions.items() if seen.lost} == {0: 15}
        for watch in (lost, watched(source, state)):  # the next one knows it, too
            [gone] = [f for f in unsettled(watch.findings.values()) if f.guarantee == "offsets_are_contiguous"]
            assert gone.message == (
                "partition 0 of topic watched: the broker deleted 15 offsets before they were read, in 1 range of "
                f"offsets, the first after {len(first) - 1}"
            )
        shown = CliRunner().invoke(main, ["watch", "status", "--state", str(state)]).stdout
        assert "; the broker deleted 15 offsets before they were read\n" in shown and "compacted" not in shown

        admin = AdminClient({"bootstrap.servers": servers, **QUIET})
        admin.create_partitions([NewPartitions("watched", n + 1)])["watched"].result(20)
        send(servers, "watched", [m | {"partition": n} for m in first[:10]])
        assert watched(source, state).view.counts.messages == lost.view.counts.messages + 10

        delete(servers, "watched")
        create(servers, "watched", n)
        with pytest.raises(SourceError, match="recreated"):
            watched(source, state)
    finally:
        delete(servers, "watched")


def test_a_broker_that_is_killed_and_comes_back(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch runs on: nothing is read twice or left out, and its findings are the ones of the recording."""
    monkeypatch.setattr(running, "RETRY_S", 0.2)
    messages, servers = recorded(golden(LOG)), f"127.0.0.1:{broker.plain}"
    half, whole = len(messages) // 2, len(messages)
    create(servers, "restarted", max(m["partition"] for m in messages) + 1)
    try:
        said = list[str]()
        with Watch(broker.url("restarted"), str(tmp_path / "state"), said=said.append) as watch:
            send(servers, "restarted", messages[:half])
            while watch.view.counts.messages < half and not watch.wait(0.1):
                pass
            broker.kill()
            while not watch.view.trouble and not watch.wait(0.1):
                pass
            shown = WatchFolder(tmp_path / "state", writes=False).view
            assert shown["trouble"] == said[0] and "is asked again every" in said[0] and not shown["caught_up"]
            broker.start()
            send(servers, "restarted", messages[half:])
            while watch.view.counts.messages < whole and not watch.wait(0.1):
                pass
        assert [text.endswith("answers again.") for text in said] == [False, True] and not watch.view.trouble
        once = watched(broker.url("restarted"), tmp_path / "state")
        assert once.view.counts.messages == whole and not any(p.lost for p in once.view.partitions.values())
        assert sentences(once) == sentences(watched(golden(LOG), tmp_path / "recording"))
    finally:
        delete(servers, "restarted")


@pytest.mark.soak
def test_the_broker_of_one_partition_falls_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three brokers one hangs, then dies: the watch names its partition, which has no copy, and reads the others."""
    monkeypatch.setattr(silences, "SILENT_S", 3.0)
    messages, said = recorded(golden(LOG)), list[str]()
    with cluster(tmp_path / "brokers") as brokers:
        servers = ",".join(f"127.0.0.1:{one.plain}" for one in brokers)
        admin = AdminClient({"bootstrap.servers": servers, **QUIET})
        led = [[1], [2], [3], [1]]
        admin.create_topics([NewTopic("alone", 4, replica_assignment=led)])["alone"].result(20)
        until_seen(admin, "alone", 4)
        half = messages[: len(messages) // 2]
        send(servers, "alone", half)
        with Watch(f"kafka://{servers}/alone", str(tmp_path / "state"), said=said.append) as watch:
            while watch.view.counts.messages < len(half) and not watch.wait(0.1):
                pass
            brokers[1].hang()
            while not watch.view.silent and not watch.wait(0.1):
                pass
            assert said[-1].startswith("Partition 1 of alone is not read since ")
            assert f"broker 127.0.0.1:{brokers[1].plain} does not answer" in said[-1]
            brokers[1].kill()
            rest = [m for m in messages[len(messages) // 2 :] if m["partition"] != 1]
            send(servers, "alone", rest)
            while watch.view.counts.messages < len(half) + len(rest) and not watch.wait(0.1):
                pass
            assert watch.view.silent and len(said) == 1
            brokers[1].start()
            while watch.view.silent and not watch.wait(0.1):
                pass
            assert said[1:] == ["Partition 1 of alone is read again."]


@pytest.mark.soak
def test_a_leader_that_dies_changes_nothing(tmp_path: Path) -> None:
    """Of three brokers the one that leads a partition is killed while the watch follows: another leads, and all is read
    once.
    """
    messages = recorded(golden(LOG))
    with cluster(tmp_path / "brokers") as brokers:
        servers = ",".join(f"127.0.0.1:{one.plain}" for one in brokers)
        admin = AdminClient({"bootstrap.servers": servers, **QUIET})
        admin.create_topics([NewTopic("led", 4, 3, config={"min.insync.replicas": "2"})])["led"].result(20)

        def leader() -> int:
            return int(admin.list_topics("led", timeout=20).topics["led"].partitions[0].leader)

        with Watch(f"kafka://{servers}/led", str(tmp_path / "state"), settle_s=0.0) as watch:
            send(servers, "led", messages[: len(messages) // 2])
            while watch.view.counts.messages < len(messages) // 2 and not watch.wait(0.1):
                pass
            first = leader()
            brokers[first - 1].kill()
            send(servers, "led", messages[len(messages) // 2 :])
            while watch.view.counts.messages < len(messages) and not watch.wait(0.1):
                pass
            assert leader() != first
        assert watch.view.counts.messages == len(messages) and not watch.view.counts.quarantined
        whole = Watch(f"kafka://{servers}/led", str(tmp_path / "state"), once=True)
        whole.run()
        assert sentences(whole) == sentences(watched(golden(LOG), tmp_path / "recording"))
