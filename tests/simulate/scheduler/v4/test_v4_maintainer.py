"""A maintainer and its nodes, message by message."""

from __future__ import annotations

from typing import Any

import pytest
from v4_cluster import STEP_US, Cluster

from ticdc_lab.machines.machine import Asked, Decided, Ignored, Send
from ticdc_lab.simulate.scheduler.roles import Drain, MergeSpans, MoveTable, Rebalance, Span, SplitTable, Tick
from ticdc_lab.simulate.scheduler.v4 import Maintainer, V4Settings
from ticdc_lab.simulate.scheduler.v4.messages import (
    HeartBeatRequest,
    ScheduleDispatcherRequest,
    TableSpanStatus,
)

QUICK = V4Settings(balance_interval_us=100_000, balance_cooldown_us=1_000_000)
UNBALANCED = V4Settings(balance_interval_us=10**12)


def running(nodes: int = 2, tables: int = 4, settings: V4Settings = QUICK) -> Cluster:
    """Give a cluster whose tables all replicate."""
    cluster = Cluster(nodes, range(1, tables + 1), settings)
    cluster.run()
    assert len(cluster.where()) == tables and not cluster.state.control.running
    return cluster


def is_order(action: str, key: object) -> Any:
    """Recognise the order of a span, to keep it back."""
    return lambda _s, _t, message: (
        isinstance(message, ScheduleDispatcherRequest)
        and (message.schedule_action, message.dispatcher_id) == (action, key)
    )


# Bootstrap


def test_nothing_is_scheduled_before_all_nodes_have_answered() -> None:
    """And the reason names who has not."""
    cluster, kept = Cluster(3, range(1, 7)), list[Any]()
    for _ in range(25):
        cluster.at_us += STEP_US
        cluster.tick()
        kept += cluster.deliver(lambda sender, *_: sender == "n3")
    assert not cluster.state.bootstrapped and not cluster.where()
    assert "n3" in cluster.watermarks.because.words and "n1" not in cluster.watermarks.because.words
    assert len(kept) == 3, "n3 is asked again each half second"
    cluster.run()
    assert cluster.state.bootstrapped and len(cluster.where()) == 6


def test_a_node_that_leaves_is_not_waited_for() -> None:
    """The bootstrap continues with the others."""
    cluster = Cluster(3, range(1, 7))
    cluster.tick()
    cluster.deliver(lambda sender, *_: sender == "n3")
    del cluster.nodes["n3"]
    cluster.run()
    assert set(cluster.where().values()) == {"n1", "n2"}


def test_a_new_maintainer_takes_over_what_runs() -> None:
    """Nothing is moved or created again; the old one's orders and the heartbeats to it count no more."""
    cluster = running(3, 6)
    before = cluster.where()
    cluster.elect("n2", 2)
    cluster.outputs.clear()
    cluster.run()
    orders = [o for o in cluster.outputs if isinstance(o, Send) and isinstance(o.message, ScheduleDispatcherRequest)]
    assert cluster.where() == before and not orders


@pytest.mark.parametrize("action", ["Create", "Remove"])
def test_an_order_of_the_old_maintainer_is_void_once_a_new_one_was_heard(action: str) -> None:
    """It is still under way when the new one bootstraps; no matter what it was part of, all spans run in the end."""
    cluster = running(settings=UNBALANCED)
    cluster.ask(MoveTable(1, "n2" if cluster.where()[1] == "n1" else "n1"))
    late: list[tuple[str, str, Any]] = []
    while not late:
        late = cluster.deliver(is_order(action, 1))
        cluster.at_us += STEP_US
        for node in ("n1", "n2"):
            cluster.poll(node)
    cluster.elect("n2", 2)
    cluster.tick()
    cluster.deliver()
    assert isinstance(cluster.give(*late[0])[0], Ignored)
    cluster.run(80)
    assert len(cluster.where()) == 4 and cluster.state.bootstrapped


def test_what_a_node_is_creating_goes_on_under_a_new_maintainer() -> None:
    """The unfinished create is an operator of the new one; nothing is created twice."""
    cluster = Cluster(2, range(1, 5), UNBALANCED)
    while len(cluster.where()) < 4:
        cluster.at_us += STEP_US
        cluster.tick()
        cluster.deliver()
    before = cluster.where()
    cluster.elect("n2", 2)
    cluster.tick()
    cluster.deliver()
    cluster.tick()
    assert {running.operator.kind for running in cluster.state.control.running.values()} == {"add"}
    cluster.run()
    assert cluster.where() == before and not cluster.state.control.running


def test_a_node_that_stops_a_span_while_the_maintainer_changes_gives_it_back() -> None:
    """The remove continues as an operator of the new maintainer, and then the span is placed again."""
    cluster = running()
    to = "n2" if cluster.where()[1] == "n1" else "n1"
    cluster.ask(MoveTable(1, to))
    cluster.deliver()
    assert cluster.nodes[cluster.where()[1]].executor.pipelines[1].state == "stopping"
    cluster.elect("n2", 2)
    cluster.run(80)
    assert len(cluster.where()) == 4 and not cluster.state.control.running


# Messages that come late


def test_a_late_create_does_not_bring_back_what_has_moved_away() -> None:
    """A doubled order of the past is older than what the node took since."""
    cluster = Cluster(2, [1, 2], UNBALANCED)
    created: list[tuple[str, str, Any]] = []

    def noted(*sent: Any) -> bool:
        if is_order("Create", 1)(*sent):
            created.append(sent)
        return False

    cluster.run(keeps=noted)
    origin = cluster.where()[1]
    cluster.ask(MoveTable(1, "n2" if origin == "n1" else "n1"))
    cluster.run()
    assert cluster.where()[1] != origin
    assert isinstance(cluster.give(*created[0])[0], Ignored)
    cluster.is_safe()


def test_a_late_heartbeat_does_not_make_a_running_span_absent() -> None:
    """A node reported Stopped, got the span back, and the old heartbeat comes in once more."""
    cluster = running(2, 2, UNBALANCED)
    origin = cluster.where()[1]
    other = "n2" if origin == "n1" else "n1"
    stopped: list[tuple[str, str, Any]] = []

    def noted(sender: str, to: str, message: Any) -> bool:
        if any(status[:2] == (1, "Stopped") for status in getattr(message, "statuses", ())) and sender == origin:
            stopped.append((sender, to, message))
        return False

    for target in (other, origin):
        cluster.ask(MoveTable(1, target))
        cluster.run(keeps=noted)
    assert cluster.where()[1] == origin and stopped
    assert isinstance(cluster.give(*stopped[0])[0], Ignored)
    assert str(cluster.state.control.spans.replicas[1]) == f"replicating@{origin}"
    cluster.run()


def test_a_lost_order_is_sent_again() -> None:
    """Remove and create, as often as it takes; the span is never on two nodes."""
    cluster = running(settings=UNBALANCED)
    to = "n2" if cluster.where()[1] == "n1" else "n1"
    cluster.ask(MoveTable(1, to))
    for action in ("Remove", "Create"):
        for step in range(60):
            cluster.at_us += STEP_US
            cluster.tick()
            for node in ("n1", "n2"):
                cluster.poll(node)
            cluster.deliver(is_order(action, 1) if step < 20 else lambda *_: False)
            cluster.is_safe()
    assert cluster.where()[1] == to


# Nodes


def test_a_restarted_processor_gets_its_spans_again() -> None:
    """Its new life is bootstrapped; orders to the old one are void; nothing is lost."""
    cluster = running(2, 4)
    cluster.ask(MoveTable(cluster_key := min(k for k, n in cluster.where().items() if n == "n2"), "n1"))
    late = cluster.deliver(is_order("Remove", cluster_key))
    cluster.restart("n2")
    cluster.run(80)
    assert isinstance(cluster.give(*late[0])[0], Ignored)
    assert len(cluster.where()) == 4 and set(cluster.where().values()) == {"n1", "n2"}


def test_spans_of_a_lost_node_start_where_it_was_at_least() -> None:
    """Not below the last watermark it reported, not above what it had written."""
    cluster = running(2, 4)
    lost = [key for key, node in cluster.where().items() if node == "n2"]
    reached = cluster.state.control.spans.reached["n2"]
    del cluster.nodes["n2"]
    cluster.tick()
    assert all(cluster.state.control.spans.replicas[key].checkpoint_ts == reached for key in lost)
    cluster.run()
    assert set(cluster.where().values()) == {"n1"} and len(cluster.where()) == 4


def test_a_node_that_joins_gets_its_share() -> None:
    """Once it has answered; each move shows why."""
    cluster = running(2, 6)
    cluster.join("n3")
    cluster.run(80)
    assert sorted(list(cluster.where().values()).count(node) for node in cluster.nodes) == [2, 2, 2]


def test_what_a_node_runs_and_nobody_wants_is_removed() -> None:
    """An orphan: its table was dropped while the maintainer changed."""
    cluster = running(2, 4)
    cluster.tables = frozenset({1, 2, 3})
    cluster.elect("n2", 2)
    cluster.run()
    assert sorted(cluster.where()) == [1, 2, 3]


def test_a_dispatcher_where_none_should_be_is_removed_before_its_span_goes_elsewhere() -> None:
    """Also if the order is lost; a span that is held like that is not forgotten when its own node goes."""
    cluster = running(2, 4, UNBALANCED)
    key = min(k for k, node in cluster.where().items() if node == "n2")
    stray = HeartBeatRequest(1, 1, cluster.nodes["n1"].seq + 1, 0, 0, (TableSpanStatus(key, "Working", 0),))
    cluster.give("n1", "n1", stray)
    assert [sent[:2] for sent in cluster.deliver(is_order("Remove", key))] == [("n1", "n1")], "it is lost"
    cluster.join("n3")
    del cluster.nodes["n2"]
    cluster.tick()
    assert str(cluster.state.control.spans.replicas[key]) == "absent"
    cluster.run()
    assert len(cluster.where()) == 4 and not cluster.state.control.running


def test_an_answer_given_twice_changes_nothing() -> None:
    """Before all have answered the later one counts, afterwards none."""
    cluster = Cluster(2, [1, 2], UNBALANCED)
    cluster.tick()
    asked = [message for message in cluster.queue if message[1] == "n1"]
    cluster.queue += asked
    cluster.deliver()
    assert not any(getattr(output, "after", None) == "restarted" for output in cluster.outputs)
    cluster.run()
    cluster.give(*asked[0])
    assert isinstance(cluster.give(*cluster.queue.pop())[0], Ignored) and len(cluster.where()) == 2


def test_tables_come_and_go() -> None:
    """A new one is created, a dropped one removed, also in the middle of a move."""
    cluster = running(2, 4)
    cluster.ask(MoveTable(1, "n2" if cluster.where()[1] == "n1" else "n1"))
    cluster.tables = frozenset({2, 3, 4, 5})
    cluster.run(60)
    assert sorted(cluster.where()) == [2, 3, 4, 5] and not cluster.state.control.running


# Users


def test_a_drained_node_ends_empty_and_stays_so() -> None:
    """Nothing returns while it is the target, nor is it balanced."""
    cluster = running(3, 9)
    cluster.ask(Drain("n2"))
    cluster.run(120)
    assert sorted(set(cluster.where().values())) == ["n1", "n3"] and len(cluster.where()) == 9


def test_the_maintainers_node_is_not_drained() -> None:
    """It shows why, once."""
    cluster = running(2, 4)
    cluster.outputs.clear()
    cluster.ask(Drain("n1"))
    cluster.run()
    told = [o for o in cluster.outputs if isinstance(o, Decided) and o.subject == "drain-scheduler"]
    assert len(told) == 1 and "first" in told[0].because and "n1" in cluster.where().values()


@pytest.mark.parametrize(
    ("command", "why_not"),
    [
        (MoveTable(9, "n2"), "9 is unknown"),
        (MoveTable(1, "n9"), "n9 is not ready"),
        (MoveTable(1, "here"), "there already"),
        (SplitTable(1, ("b", "a")), "do not divide"),
        (SplitTable(1, ("b",), ("n1",)), "2 parts and 1 targets"),
        (SplitTable(9, ("b",)), "9 is unknown"),
        (MergeSpans((1, 2)), "not all of them are spans"),
    ],
)
def test_a_wish_that_cannot_be_followed_is_answered_with_why_not(command: Any, why_not: str) -> None:
    """Nothing else happens."""
    cluster = running()
    if isinstance(command, MoveTable) and command.to == "here":
        command = command._replace(to=cluster.where()[1])
    cluster.outputs.clear()
    cluster.ask(command)
    (told,) = cluster.outputs
    assert isinstance(told, Decided) and told.chosen is None and why_not in told.because


def test_a_table_is_split_and_merged_again() -> None:
    """Its parts run, one node's are merged to one; a new maintainer knows them, and fills a hole."""
    cluster = running(2, 3)
    cluster.ask(SplitTable(1, ("g", "p"), ("n1", "n1", "n2")))
    cluster.run()
    parts = [Span(1, "", "g"), Span(1, "g", "p"), Span(1, "p", "")]
    assert [cluster.where().get(part) for part in parts] == ["n1", "n1", "n2"] and 1 not in cluster.where()
    cluster.ask(MergeSpans(tuple(parts[:2])))
    cluster.run(10)
    assert {key for key in cluster.where() if isinstance(key, Span)} == {Span(1, "", "p"), Span(1, "p", "")}
    del cluster.nodes["n1"]
    cluster.elect("n2", 2)
    cluster.run()
    assert {key for key in cluster.where() if isinstance(key, Span)} == {Span(1, "", "p"), Span(1, "p", "")}
    assert len(cluster.where()) == 4
    cluster.tables = frozenset({2, 3})
    cluster.run()
    assert sorted(cluster.where()) == [2, 3]


def test_users_can_have_it_balanced_now() -> None:
    """Without waiting for the next look."""
    cluster = running(2, 6, UNBALANCED)
    cluster.join("n3")
    cluster.run()
    assert "n3" not in cluster.where().values()
    cluster.ask(Rebalance())
    cluster.run()
    assert list(cluster.where().values()).count("n3") == 2


# Watermarks


def test_watermarks_follow_the_slowest_and_never_fall() -> None:
    """Within a step of the lag; resolved is at least the checkpoint; also while tables move."""
    cluster, last = running(2, 4), 0
    for step in range(60):
        if step % 20 == 0:
            cluster.ask(MoveTable(1, "n1" if cluster.where().get(1) == "n2" else "n2"))
        cluster.run(1)
        if cluster.watermarks.checkpoint_ts is not None and cluster.watermarks.resolved_ts is not None:
            assert last <= cluster.checkpoint_ts and cluster.watermarks.resolved_ts >= cluster.watermarks.checkpoint_ts
            last = cluster.checkpoint_ts


def test_an_absent_table_holds_the_checkpoint_and_is_named() -> None:
    """With since when."""
    cluster = running(1, 2)
    held = cluster.checkpoint_ts
    cluster.tables = frozenset({1, 2, 3})
    cluster.deliver(lambda *_: True)
    at_us = cluster.at_us = cluster.at_us + STEP_US
    cluster.tick()
    assert cluster.watermarks.checkpoint_ts is None and cluster.checkpoint_ts == held
    assert (
        "table 3 is scheduling@n1" in cluster.watermarks.because.words and cluster.watermarks.because.since_us == at_us
    )


def test_a_table_that_a_ddl_has_brought_begins_with_the_ddl() -> None:
    """Etcd's checkpoint may lie below: a maintainer reported more, which is persisted above the table (seed 941)."""
    cluster = running(1, 2)
    cluster.tables, executed_ts = frozenset({1, 2, 3}), cluster.checkpoint_ts + 1000
    cluster.ask(Tick(frozenset({"n1"}), cluster.tables, cluster.checkpoint_ts, None, executed_ts))
    (created,) = [m for _, _, m in cluster.queue if isinstance(m, ScheduleDispatcherRequest)]
    assert (created.dispatcher_id, created.start_ts) == (3, executed_ts)


def test_a_barrier_holds_the_checkpoint() -> None:
    """Nothing passes it."""
    cluster = running(1, 2)
    held = cluster.checkpoint_ts
    for _ in range(5):
        cluster.at_us += STEP_US
        cluster.tick(held)
        cluster.poll("n1")
        cluster.deliver()
    assert cluster.checkpoint_ts == held and "barrier" in cluster.watermarks.because.words


def test_who_is_not_elected_takes_nothing() -> None:
    """It is ignored, with the reason."""
    maintainer = Maintainer()
    cluster = running(1, 1)
    state, _ = maintainer.start("n1", cluster.now)
    same, outputs = maintainer.step(state, Asked(Rebalance()), cluster.now)
    assert same == state and isinstance(outputs[0], Ignored)
