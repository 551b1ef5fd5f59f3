"""The event loop: the same arguments give the same bytes, and each fault has its effect, seen on small machines."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from ticdc_lab.errors import ContractError
from ticdc_lab.machines.machine import Asked, Broken, Exit, Fired, Received, Send, Wake, replace, stepped
from ticdc_lab.simulate import faults as fault
from ticdc_lab.simulate.faults import Chaos
from ticdc_lab.simulate.kernel import Kernel
from ticdc_lab.simulate.network import DATAGRAM, RESEND, Link, Network
from ticdc_lab.simulate.scheduler.run import simulate
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings
from ticdc_lab.simulate.trace import FULL, Recorder

STILL = Link((1000, 1000))
HEADER = """
import dataclasses
import hashlib
import pyarrow as pa
from ticdc_lab.simulate.faults import Chaos
from ticdc_lab.simulate.scheduler.run import simulate
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings
FULL = "full"
"""


class Number(NamedTuple):
    """A message of the test machines."""

    n: int


class Other(NamedTuple):
    """A message of another kind."""

    n: int


@dataclass(frozen=True)
class Sender:
    """Sends 1, 2, 3, ... to a peer, one every ``every_us``, unless its transport refuses."""

    to: str = "b"
    every_us: int = 10_000
    most: int = 1 << 30

    def start(self, address, now):
        """The state is the number of the last message."""
        return 0, [Wake(self.every_us, "go")]

    def step(self, state, event, now):
        """Send at each timer; a command ``leave`` ends the process, also ``for good``, ``break`` an invariant."""
        if isinstance(event, Asked):
            after_us = {"leave": 50_000, "leave for good": 1 << 62}.get(event.command)
            return state, [Exit(after_us, "asked") if after_us else Broken("Peace", "asked")]
        if not isinstance(event, Fired) or event.name != "go" or state >= self.most:
            return state, []
        if self.to in now.refused:
            return state, [Wake(self.every_us, "go")]
        return state + 1, [Send(self.to, Number(state + 1)), Send(self.to, Other(state + 1)), Wake(self.every_us, "go")]


@dataclass(frozen=True)
class Keeper:
    """Keeps what it hears, as (time, clock, number)."""

    def start(self, address, now):
        """Nothing yet."""
        return (), []

    def step(self, state, event, now):
        """Keep numbers."""
        if isinstance(event, Received) and isinstance(event.message, Number):
            return (*state, (now.at_us, now.at_us + now.skew_us, event.message.n)), []
        return state, []


def world(*faults, link=STILL, transport=RESEND, seed=0, sender=None, **settings):
    """Give a kernel in which ``a`` sends to ``b``."""
    return Kernel(
        {"a": sender or Sender(), "b": Keeper()},
        network=Network(link, transport=transport),
        faults=faults,
        seed=seed,
        recorder=Recorder("test", FULL),
        **settings,
    )


def heard(kernel, until_us=200_000):
    """Run; give the numbers that came in at ``b``'s present address."""
    kernel.run(until_us)
    return [n for _, _, n in kernel.states[kernel.address["b"]]]


def rows(kernel, kind):
    """Give the rows of a kind."""
    return [r for r in kernel.recorder.rows if r.kind == kind]


def ipc(table):
    """Give a table's bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def digest(seed, variant="v2"):
    """Give the hash of the trace of a run with faults of all kinds."""
    settings = SchedulerSettings(variant=variant, captures=3, tables=5)
    run = simulate(settings, seed=seed, chaos=Chaos(6_000_000), until_us=8_000_000, level=FULL)
    return hashlib.sha256(ipc(run.trace)).hexdigest()


# The same again


def test_the_same_arguments_give_the_same_trace_byte_for_byte():
    """Also in another process, where strings have other hashes; another seed gives another trace."""
    source = HEADER + inspect.getsource(ipc) + inspect.getsource(digest)
    source += "print(*(digest(5, v) for v in ('v2', 'v3', 'v4')))"
    env = {**os.environ, "PYTHONHASHSEED": "77"}
    done = subprocess.run([sys.executable, "-c", source], env=env, capture_output=True, text=True, check=True)
    found = [digest(5, v) for v in ("v2", "v3", "v4")]
    assert done.stdout.split() == found == [digest(5, v) for v in ("v2", "v3", "v4")]
    assert len({*found, digest(6)}) == 4


SPANS = """
from ticdc_lab.simulate.scheduler.roles import Span
from ticdc_lab.simulate.scheduler.dispatcher_state import first
from immutables import Map
keys = [*(Span(1, f"{i:05}", f"{i + 1:05}") for i in range(1200)), *range(50, 60)]
print(first(Map((key, None) for key in keys)), first(Map((key, None) for key in keys[:1200])))
"""


def test_the_table_that_is_named_of_many_does_not_depend_on_how_strings_hash():
    """Spans hash differently in each process."""
    told = set()
    for seed in "012":
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run([sys.executable, "-c", SPANS], env=environment, capture_output=True, text=True, check=True)
        told.add(run.stdout)
    assert told == {"1[00000,00001) 1[00000,00001)\n"}


def test_a_run_again_with_other_faults_has_the_same_beginning():
    """Run.again: bytes are equal up to the moment from which on faults differ, and differ after it."""
    settings, at_us = SchedulerSettings(captures=3, tables=4), 4_000_000
    run = simulate(settings, seed=3, chaos=Chaos(8_000_000), until_us=9_000_000)
    other = run.again(at_us, [fault.Crash(at_us + 1, "capture-1")])
    one, two = run.trace, other.trace
    before = [t.filter(pa.compute.less(t["time_us"], at_us)).combine_chunks() for t in (one, two)]
    assert before[0].num_rows > 200 and ipc(before[0]) == ipc(before[1])
    assert ipc(one) != ipc(two) and "crashed" in two["kind"].to_pylist()
    assert ipc(run.again(0, run.faults).trace) == ipc(one)


@pytest.mark.parametrize(
    "others",
    [[], [fault.Join(4_500_000, "capture-3")], [fault.Crash(3_000_000, "capture-1")]],
)
def test_a_run_again_has_the_same_world(others):
    """A node that joins later, its network and the name of the run stay as they were."""
    joins, network = [fault.Join(4_000_000, "capture-3")], Network(Link((700, 900)))
    run = simulate(
        SchedulerSettings(captures=3, tables=4),
        faults=joins,
        network=network,
        name="mine",
        until_us=5_000_000,
        stops_at_violation=False,
    )
    other = run.again(3_000_000, others)
    before = [t.filter(pa.compute.less(t["time_us"], 3_000_000)).combine_chunks() for t in (run.trace, other.trace)]
    assert before[0].num_rows > 200 and ipc(before[0]) == ipc(before[1])
    assert other.network == network
    assert "capture-3" in other.kernel.states
    if not others:
        assert ipc(other.trace) == ipc(run.trace)


def test_a_run_again_does_not_change_the_past():
    """A fault before the moment is an error."""
    run = simulate(SchedulerSettings(captures=1, tables=1), until_us=1000)
    with pytest.raises(ValueError, match="lies before 500"):
        run.again(500, [fault.Crash(400, "capture-1")])


# One fault after another


def test_a_crash_ends_what_a_node_does_and_hears():
    """Its timers are dead, and what is sent to it does not come in."""
    assert heard(world(fault.Crash(55_000, "a"))) == [1, 2, 3, 4, 5]
    kernel = world(fault.Crash(55_000, "b"), transport=DATAGRAM)
    assert heard(kernel) == [1, 2, 3, 4, 5]
    assert {r.message.n for r in rows(kernel, "lost")} == set(range(6, 20))


def test_a_restart_without_state_gives_a_fresh_node_under_a_new_address():
    """What goes to the old address is lost."""
    kernel = world(fault.Crash(55_000, "b"), fault.Restart(105_000, "b"))
    assert heard(kernel) == [] and kernel.address["b"] == "b.2" and "b" not in kernel.states
    assert {r.because for r in rows(kernel, "lost")} == {"b is gone", "b is not there"}
    assert [r.because for r in rows(kernel, "restarted")] == ["without its state"]


def test_a_sender_that_restarts_without_state_begins_again():
    """Its numbers begin at 1, and its first life's timers are gone."""
    kernel = world(fault.Crash(55_000, "a"), fault.Restart(100_000, "a"))
    assert heard(kernel, 135_000) == [1, 2, 3, 4, 5, 1, 2, 3]


def test_a_restart_with_state_goes_on_where_it_was():
    """The same address, the state, and timers that came due fire at once."""
    kernel = world(fault.Crash(55_000, "a"), fault.Restart(100_000, "a", keep_state=True))
    assert heard(kernel, 125_000) == [1, 2, 3, 4, 5, 6, 7, 8] and kernel.address["a"] == "a"
    assert [t for t, _, n in kernel.states["b"] if n == 6] == [101_000]


def test_a_resending_transport_delivers_to_a_node_that_is_back_with_its_state():
    """In order, each once; a datagram is lost."""
    down = (fault.Crash(55_000, "b"), fault.Restart(100_000, "b", keep_state=True))
    assert heard(world(*down), 155_000) == list(range(1, 16))
    assert heard(world(*down, transport=DATAGRAM), 155_000) == [1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize("node", ["a", "b"])
def test_messages_and_timers_wait_for_a_paused_node(node):
    """Nothing is lost, and nothing happens meanwhile."""
    kernel = world(fault.Pause(55_000, node, 40_000))
    assert heard(kernel) == list(range(1, 20 if node == "b" else 17))
    times = [t for t, _, _ in kernel.states["b"]]
    assert not [t for t in times if 55_000 < t < 95_000] and times == sorted(times)
    assert [r.time_us for r in rows(kernel, "resumed")] == [95_000]


def test_a_one_way_partition_holds_one_way_only():
    """A resending transport delivers what was held when it heals; datagrams are lost."""
    cut = (fault.Part(55_000, "a", "b", one_way=True, for_us=50_000),)
    kernel = world(*cut)
    assert heard(kernel) == list(range(1, 20))
    assert not [t for t, _, _ in kernel.states["b"] if 55_000 < t < 105_000]
    assert heard(world(*cut, transport=DATAGRAM)) == [1, 2, 3, 4, 5, *range(11, 20)]
    assert heard(world(fault.Part(55_000, "b", "a", one_way=True, for_us=50_000), transport=DATAGRAM)) == [
        *range(1, 20)
    ]


def test_a_partition_lasts_until_it_is_healed():
    """Heal opens both ways, also where two partitions lie over each other."""
    cut = [fault.Part(55_000, "a", "b"), fault.Part(60_000, "b", "a"), fault.Heal(100_000, "b", "a")]
    assert heard(world(*cut[:2], transport=DATAGRAM)) == [1, 2, 3, 4, 5]
    assert heard(world(*cut, transport=DATAGRAM)) == [1, 2, 3, 4, 5, *range(10, 20)]
    kernel = world(*cut)
    assert heard(kernel) == list(range(1, 20)) and len(rows(kernel, "parted")) == 2 and len(rows(kernel, "healed")) == 1


def test_the_end_of_a_partition_that_was_healed_does_not_end_a_later_one():
    """Heal takes the time of a timed partition with it."""
    early = [fault.Part(15_000, "a", "b", False, 60_000), fault.Heal(25_000, "a", "b")]
    kernel = world(*early, fault.Part(55_000, "a", "b"), transport=DATAGRAM)
    assert heard(kernel) == [1, 3, 4, 5] and len(rows(kernel, "healed")) == 1


def test_a_refusing_transport_is_seen_by_the_sender():
    """Nothing is sent meanwhile, and nothing is lost."""
    kernel = world(fault.Refuse(55_000, "a", "b", 30_000))
    assert heard(kernel, 115_000) == list(range(1, 9))
    assert not [r for r in rows(kernel, "sent") if 55_000 < r.time_us < 85_000] and not rows(kernel, "lost")


@pytest.mark.parametrize("node", ["a", "b"])
def test_a_refusal_outlasts_a_restart_under_a_new_address(node):
    """It is of nodes, not of their lives; also of a node that is not there yet."""
    sender = Sender("b.2") if node == "b" else Sender()
    back = [fault.Crash(15_000, node), fault.Restart(16_000, node)]
    kernel = world(fault.Refuse(5_000, "a", "b", 100_000), *back, sender=sender)
    heard(kernel, 90_000)
    assert not [r for r in rows(kernel, "sent") if 16_000 < r.time_us < 105_000]
    heard(kernel, 125_000)
    assert [r for r in rows(kernel, "sent") if r.time_us > 105_000]
    late = world(fault.Refuse(5_000, "a", "b", 50_000), fault.Join(15_000, "a"))
    assert heard(late, 87_000) == [1, 2, 3, 4]


BAD = Link((1000, 20_000), loss=0.3, duplicate=0.3, reorder=0.3)


@pytest.mark.parametrize("seed", range(5))
def test_a_resending_transport_hides_what_a_link_does(seed):
    """In order, exactly once; only later."""
    kernel = world(link=BAD, seed=seed, sender=Sender(most=200))
    assert heard(kernel, 10_000_000) == list(range(1, 201))
    assert rows(kernel, "resent") and not rows(kernel, "lost")


def test_datagrams_show_what_a_link_does():
    """Some are lost, some come twice, some overtake others."""
    kernel = world(link=BAD, transport=DATAGRAM, sender=Sender(most=300))
    found = heard(kernel, 10_000_000)
    assert found != sorted(found) and max(Counter(found).values()) > 1
    assert 0.2 < 1 - len(set(found)) / 300 < 0.4
    gone = {r.message.n for r in rows(kernel, "lost") if isinstance(r.message, Number)}
    assert gone | set(found) == set(range(1, 301)) and not gone & set(found)


@pytest.mark.parametrize(
    ("link", "wrong"),
    [
        (Link((1000, 2000), loss=0.5), lambda f: len(set(f)) < 100 and f == sorted(set(f))),
        (Link((1000, 2000), duplicate=0.5), lambda f: set(f) == set(range(1, 101)) and len(f) > 120),
        (Link((1000, 30_000), reorder=0.5), lambda f: sorted(f) == list(range(1, 101)) and f != sorted(f)),
    ],
    ids=["loss", "duplicate", "reorder"],
)
def test_each_fault_of_a_link_does_only_what_it_says(link, wrong):
    """Seen as datagrams."""
    assert wrong(heard(world(link=link, transport=DATAGRAM, sender=Sender(most=100)), 10_000_000))


@pytest.mark.parametrize("transport", [RESEND, DATAGRAM])
def test_a_chosen_message_is_lost(transport):
    """Of the kind, from the sender, as often as ordered, no matter what the transport does."""
    chosen = fault.Lose(35_000, "Number", sender="a", times=2)
    kernel = world(chosen, fault.Lose(65_000, "Number", sender="b"), transport=transport)
    assert heard(kernel, 105_000) == [1, 2, 3, 6, 7, 8, 9, 10]
    assert {type(r.message) for r in rows(kernel, "lost")} == {Number}


def test_a_link_is_bad_for_a_while():
    """Relink, and back."""
    kernel = world(fault.Relink(45_000, "a", "b", Link((8000, 8000)), 30_000))
    heard(kernel, 130_000)
    delay = {n: t - 10_000 * n for t, _, n in kernel.states["b"]}
    assert [delay[n] for n in range(1, 12)] == [1000] * 4 + [8000] * 3 + [1000] * 4


def test_links_that_are_bad_in_overlapping_stretches_are_good_again_after_the_last():
    """The later one is in force until its own end, and neither comes back."""
    slow = [fault.Relink(45_000, "a", "b", Link((3000, 3000)), 30_000)]
    slow += [fault.Relink(55_000, "a", "b", Link((8000, 8000)), 40_000)]
    kernel = world(*slow)
    heard(kernel, 150_000)
    delay = {n: t - 10_000 * n for t, _, n in kernel.states["b"]}
    assert [delay[n] for n in range(1, 14)] == [1000] * 4 + [3000] + [8000] * 4 + [1000] * 4


def test_a_clock_is_ahead_and_drifts():
    """The offset at once, the drift in proportion to time; virtual time is as it was."""
    kernel = world(fault.Skew(55_000, "b", 7_000, 100_000))
    heard(kernel, 160_000)
    ahead = {n: clock - t for t, clock, n in kernel.states["b"]}
    assert ahead[5] == 0 and ahead[6] == 7_000 + 600 and ahead[15] == 7_000 + 9_600


def test_a_node_that_joins_was_not_there_before():
    """What was sent to it is lost."""
    kernel = world(fault.Join(55_000, "b"))
    assert heard(kernel, 105_000) == [6, 7, 8, 9, 10] and len(rows(kernel, "lost")) == 10


@pytest.mark.parametrize(
    "early",
    [fault.Crash(15_000, "b"), fault.Pause(15_000, "b", 50_000), fault.Restart(15_000, "b"), fault.Ask(15_000, "b", 0)],
)
def test_nothing_happens_to_a_node_before_it_joins(early):
    """A fault on it, which a seed may draw, is no error; nor is a second Join."""
    assert heard(world(early, fault.Join(55_000, "b")), 105_000) == [6, 7, 8, 9, 10]
    assert heard(world(early, fault.Join(55_000, "b"), fault.Join(75_000, "b")), 105_000) == [6, 7, 8, 9, 10]


@pytest.mark.parametrize("longer", [True, False])
def test_of_two_pauses_the_later_end_counts(longer):
    """Whichever began first."""
    pauses = [
        fault.Pause(15_000, "b", 10_000 if longer else 60_000),
        fault.Pause(20_000, "b", 55_000 if longer else 10),
    ]
    kernel = world(*pauses)
    heard(kernel, 100_000)
    assert [t for t, _, _ in kernel.states["b"]] == [11_000, *[75_000] * 6, 81_000, 91_000]
    assert [r.time_us for r in rows(kernel, "resumed")] == [75_000]


def test_a_loss_that_waits_for_its_message_is_over_at_its_end():
    """Found by the swarm of DDL as a Service: a server's session ended because of a fault of long ago."""
    assert heard(world(fault.Lose(35_000, "Number", until_us=38_000)), 75_000) == [1, 2, 3, 4, 5, 6, 7]
    assert heard(world(fault.Lose(35_000, "Number", until_us=40_000)), 75_000) == [1, 2, 3, 5, 6, 7]


def test_who_has_left_for_good_is_no_trouble_to_who_comes_back_with_its_state():
    """Timers that wait are looked for among all that waits without end (found by the swarm of DDL as a Service)."""
    back = (fault.Crash(55_000, "b"), fault.Restart(100_000, "b", keep_state=True))
    kernel = world(fault.Ask(20_000, "a", "leave for good"), *back)
    assert kernel.run(200_000).because == "time"
    assert "a" in kernel.down and "b" not in kernel.down


def test_a_crash_keeps_a_process_down_that_had_left_by_itself():
    """Until a Restart; and a return that was due ends no later crash."""
    gone = [fault.Ask(55_000, "a", "leave"), fault.Crash(65_000, "a")]
    kernel = world(*gone)
    assert heard(kernel, 195_000) == [1, 2, 3, 4, 5] and len(rows(kernel, "crashed")) == 2
    assert heard(world(*gone, fault.Restart(165_000, "a")), 195_000) == [1, 2, 3, 4, 5, 1, 2]
    back = [fault.Ask(55_000, "a", "leave"), fault.Restart(56_000, "a"), fault.Crash(80_000, "a")]
    assert heard(world(*back), 195_000) == [1, 2, 3, 4, 5, 1, 2]


@pytest.mark.parametrize(
    "faults",
    [[fault.Pause(60_000, "b", 35_000)], [fault.Crash(60_000, "b"), fault.Restart(95_000, "b", keep_state=True)]],
)
def test_what_arrives_as_a_node_goes_on_comes_after_what_waited(faults):
    """A transport that keeps order keeps it over a pause too, to the microsecond."""
    found = heard(world(*faults, link=Link((25_000, 25_000))), 300_000)
    assert found == sorted(found) and len(found) == 27


def test_a_process_that_leaves_comes_back_fresh():
    """Exit: after the time it names, under a new address."""
    kernel = world(fault.Ask(55_000, "a", "leave"))
    assert heard(kernel, 135_000) == [1, 2, 3, 4, 5, 1, 2] and kernel.address["a"] == "a.2"


# How a run ends


def test_a_run_ends_at_its_time():
    """And can continue."""
    kernel = world()
    assert (kernel.run(50_000).because, kernel.now_us) == ("time", 50_000)
    assert kernel.run(90_000).because == "time" and len(kernel.states["b"]) == 8


def test_a_run_in_which_nothing_is_left_is_quiet():
    """It ends when the last message has come in."""
    kernel = world(sender=Sender(most=3))
    end = kernel.run(10_000_000)
    assert (end.because, end.violation) == ("quiet", None) and end.time_us == 40_000
    assert [n for _, _, n in kernel.states["b"]] == [1, 2, 3]


def test_a_run_that_takes_too_many_steps_stops_and_says_what_it_was_doing():
    """The limit is exact."""
    kernel = world(step_limit=25)
    end = kernel.run(10_000_000)
    assert (end.because, end.steps) == ("steps", 25)
    assert "next: a " in end.doing and "entries wait" in end.doing
    assert rows(kernel, "stopped")[-1].because == f"steps: {end.doing}"


def test_what_a_run_was_doing_is_told_without_the_address_of_a_function():
    """The row that ends a trace is the same in each process, also where a fault ends next."""
    pause = [fault.Pause(1_000, "capture-1", 1_000), fault.Refuse(2_000, "capture-1", "etcd", 1_000)]
    settings = SchedulerSettings(captures=1, tables=200)
    runs = [simulate(settings, faults=pause, until_us=500_000, step_limit=n, level="nothing") for n in range(120)]
    ends = [run.end for run in runs]
    told = [e.doing for e in ends if e.because == "steps"]
    assert any("the end of a fault at 0.0" in t for t in told) and any(" messages from " in t for t in told)
    assert not any("0x" in t for t in told) and max(map(len, told)) < 400


def test_a_broken_machine_ends_the_run():
    """The violation shows which, when and at which step."""
    kernel = world(fault.Ask(55_000, "a", "break"))
    end = kernel.run(10_000_000)
    assert end.because == "violation" and end.violation
    assert (end.violation.invariant, end.violation.time_us, end.violation.step) == ("Peace", 55_000, end.steps)
    assert [r.subject for r in rows(kernel, "violated")] == ["Peace"]


class Counting:
    """An auditor that finds everything wrong at ``b``."""

    def __init__(self):
        self.seen = Counter()

    def saw(self, kernel: Kernel, at: str, before: Any, after: Any, outputs: Any):
        """Count steps."""
        self.seen[at] += 1
        return ("Silence", "b hears something") if at == "b" and after else None

    def went_down(self, kernel: Kernel, at: str, state: Any):
        """Count."""
        self.seen["down"] += 1

    def came_up(self, kernel: Kernel, at: str, state: Any):
        """Count."""
        self.seen["up"] += 1


def test_the_auditor_sees_each_step_and_stops_the_run():
    """At the step in which it finds something."""
    auditor = Counting()
    end = world(auditor=auditor).run(1_000_000)
    assert end.violation and end.violation.invariant == "Silence" and end.time_us == 11_000
    auditor = Counting()
    world(fault.Pause(5_000, "a", 100), fault.Crash(6_000, "b"), auditor=auditor).run(9_000)
    assert (auditor.seen["down"], auditor.seen["up"]) == (2, 1)


def test_the_auditor_can_be_told_to_record_only():
    """A run continues after a violation, and its measures show what it cost."""
    settings = SchedulerSettings(captures=2, tables=2, ttl_us=2_000_000, margin_us=0, stop_lag_us=1_500_000)
    faults = [fault.Part(3_000_000, "capture-2", "etcd", for_us=6_000_000)]
    stopped = simulate(settings, faults=faults, until_us=15_000_000)
    assert stopped.violation and stopped.violation.invariant == "No Double Write"
    run = simulate(settings, faults=faults, until_us=15_000_000, stops_at_violation=False)
    assert run.violation is None and run.end.because == "time" and run.measures.overlap_us > 100_000
    assert run.kernel.auditor.n_violations >= 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("transport", [RESEND, DATAGRAM])
def test_every_message_that_was_sent_is_accounted_for(seed, transport):
    """Sent is received, lost, or still on its way, which ends soon after the faults do; copies are received besides."""
    settings, network = SchedulerSettings(captures=3, tables=4), Network(transport=transport)
    run = simulate(settings, seed=seed, network=network, chaos=Chaos(8_000_000), until_us=9_000_000)
    sent, received, lost = by_fate(run)
    assert max(sent.values()) == 1 and len(sent) == run.messages and received.keys() | lost.keys() <= sent.keys()
    on_way = sent.keys() - received.keys() - lost.keys()
    assert 0 < len(on_way) < 100
    run.kernel.run(14_000_000)
    later, received, lost = by_fate(run)
    assert not on_way - received.keys() - lost.keys() and len(later) == run.kernel.post.n_sent > len(sent)
    if transport == RESEND:
        assert max(received.values()) == 1 and not received.keys() & lost.keys()


def by_fate(run):
    """Give how often each message was sent, received and lost."""
    found = {kind: Counter() for kind in ("sent", "received", "lost")}
    for row in run.kernel.recorder.rows:
        if row.kind in found and row.message_id is not None:
            found[row.kind][row.message_id] += 1
    return found.values()


@pytest.mark.parametrize("transport", [RESEND, DATAGRAM])
def test_when_all_is_quiet_nothing_is_on_its_way(transport):
    """Every message was received or lost."""
    kernel = world(link=BAD, transport=transport, sender=Sender(most=100))
    assert kernel.run(1 << 40).because == "quiet"
    fates = {r.message_id for r in kernel.recorder.rows if r.kind in ("received", "lost")}
    assert fates == {r.message_id for r in rows(kernel, "sent")} and len(fates) == kernel.post.n_sent == 200


def on_their_way(kernel):
    """Give the messages that wait in the queue, behind a partition or for a node that is down."""
    entries = [e for _, _, what, e in kernel.queue if what == 0]
    many = [e for _, _, what, e in kernel.queue if what == 5]
    entries += [e for held in (*kernel.post.held.values(), *kernel.post.unheard.values()) for e in held]
    return {e[3] for e in entries} | {first + i for _, _, messages, first in many for i in range(len(messages))}


def test_a_named_tuple_that_every_step_replaces_is_replaced_as_any_other() -> None:
    """By whichever names, all else as it was; a name that it has not is refused."""

    class Plain(NamedTuple):
        a: int
        b: str = "b"
        c: tuple[int, ...] = ()

    one, quick = Plain(1), stepped(type("Quick", (Plain,), {}))
    for changes in ({}, {"a": 2}, {"c": (1,), "b": "x"}, {"a": 0, "b": "", "c": (3,)}):
        replaced = quick(*one)._replace(**changes)
        assert type(replaced) is quick and tuple(replaced) == tuple(one._replace(**changes))
    with pytest.raises(TypeError):
        quick(*one)._replace(d=1)


@dataclass(frozen=True, slots=True)
class _Slotted:
    kind: int
    new: str = "b"
    old: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Checked:
    at_us: int

    def __post_init__(self) -> None:
        if self.at_us < 0:
            raise ValueError(self.at_us)


def test_a_data_class_is_replaced_as_dataclasses_does_it() -> None:
    """By whichever names, all else as it was; a name that it has not is refused, and what a class checks is checked."""
    one = _Slotted(1)
    for changes in ({}, {"kind": 2}, {"new": "x"}, {"kind": 0, "new": ""}):
        assert replace(one, **changes) == dataclasses.replace(one, **changes) and one == _Slotted(1)
    with pytest.raises(TypeError):
        replace(one, d=1)
    assert replace(_Checked(1), at_us=2) == _Checked(2)
    with pytest.raises(ValueError, match="-1"):
        replace(_Checked(1), at_us=-1)


@pytest.mark.parametrize("named", [fault.Crash(1, "c"), fault.Ask(1, "c", "leave")])
def test_a_fault_of_a_node_that_is_not_there_names_those_that_are(named: fault.Fault) -> None:
    """Also one from an event of a scenario that asks a node which its model does not have."""
    with pytest.raises(ContractError, match="names the node c; this run has a, b"):
        world(named).run(until_us=10)
