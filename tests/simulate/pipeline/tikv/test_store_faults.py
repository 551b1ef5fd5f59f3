"""No matter what happens to the stores, the streams bring exactly what is committed, and no resolved_ts
is taken back.
"""

from __future__ import annotations

import pytest
from exploring import seeds
from tikv_world import TABLE, stores_of, world

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.simulate import faults as fault
from ticdc_lab.simulate.pipeline.kv_messages import TransferLeader
from ticdc_lab.simulate.pipeline.settings import TikvSettings
from ticdc_lab.simulate.pipeline.tables import key_of

SECOND = 1_000_000
KEY = key_of(TABLE, 0)
OTHERS = ("tikv-1", "tikv-3", "pd")


def whole(run):
    """The rule: all that clients learned is there, streams brought that and nothing else, and watermarks kept."""
    committed = run.committed()
    assert run.subscriber.problems == []
    assert run.subscriber.violations == []
    assert run.subscriber.seen == committed
    told = {k: v for k, v in run.client.committed.items() if committed.get(k, ())[:3] != v}
    assert told == {}, "acknowledged and lost"
    assert run.client.txns == {}
    lag_ms = [(ts_of(run.kernel.now_us) >> 18) - (ts >> 18) for _, _, ts in run.subscriber.frontier]
    assert max(lag_ms) < 1000, "a resolved_ts stands although nothing is locked"


FAULTS = {
    "none": (),
    "a store stops and comes back": (
        fault.Crash(SECOND, "tikv-2"),
        fault.Restart(3 * SECOND, "tikv-2", keep_state=True),
    ),
    "a store restarts": (fault.Crash(SECOND, "tikv-2"), fault.Restart(SECOND + 1000, "tikv-2", keep_state=True)),
    "a store stays down": (fault.Crash(SECOND, "tikv-2"),),
    "a store begins anew with its disk": (fault.Crash(SECOND, "tikv-2"), fault.Restart(SECOND + 1000, "tikv-2")),
    "all stores crash at once": tuple(
        f
        for i in (1, 2, 3)
        for f in (fault.Crash(SECOND, f"tikv-{i}"), fault.Restart(SECOND + i * 200_000, f"tikv-{i}"))
    ),
    "a last write is torn": (fault.Crash(SECOND, "tikv-2"), fault.Restart(SECOND + 1000, "tikv-2", disk=fault.TORN)),
    "a disk is lost": (fault.Crash(SECOND, "tikv-2"), fault.Restart(SECOND + 1000, "tikv-2", disk=fault.LOST)),
    "one disk after the other is lost": tuple(
        f
        for i in (1, 2, 3)
        for f in (
            fault.Crash(i * SECOND, f"tikv-{i}"),
            fault.Restart(i * SECOND + 300_000, f"tikv-{i}", disk=fault.LOST),
        )
    ),
    "a leader is cut off": tuple(fault.Part(SECOND, "tikv-2", other, for_us=2 * SECOND) for other in OTHERS),
    "a leader is cut off from its followers": tuple(
        fault.Part(SECOND, "tikv-2", other, for_us=2 * SECOND) for other in OTHERS[:2]
    ),
    "a leader is not heard": tuple(fault.Part(SECOND, "tikv-2", o, one_way=True, for_us=2 * SECOND) for o in OTHERS),
    "a leader hears nothing": tuple(fault.Part(SECOND, o, "tikv-2", one_way=True, for_us=2 * SECOND) for o in OTHERS),
    "a leader hangs": (fault.Pause(SECOND, "tikv-2", 1_500_000),),
    "a leadership goes there and back": (
        fault.Ask(SECOND, "tikv-2", TransferLeader(KEY, "tikv-3")),
        fault.Ask(1_500_000, "tikv-3", TransferLeader(KEY, "tikv-2")),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_streams_bring_what_is_committed(name):
    """Each fault by itself."""
    whole(world(seed=1, faults=FAULTS[name]))


@pytest.mark.parametrize("seed", seeds([0, 1], of=range(4)))
def test_streams_bring_what_is_committed_in_chaos(seed):
    """Faults drawn by a seed: processes begin again with their disks."""
    kinds = ("crash", "restart", "pause", "part", "lossy")
    chaos = fault.Chaos(4 * SECOND, 400_000, kinds, SECOND, SECOND, SECOND)
    drawn = fault.drawn(chaos, stores_of(TikvSettings()), "pd", seed)
    whole(world(seed=seed, faults=drawn))


def test_a_late_vote_does_not_elect_again():
    """A vote that comes in after its candidate has won is void: what was proposed since then stays."""
    late = [fault.Part(SECOND, "tikv-2", other, for_us=2 * SECOND) for other in OTHERS[:2]]
    run = world(seed=3, faults=late)
    elected = [r for r in run.kernel.recorder.rows if r.subject == "region:2" and r.node == "tikv-3" and r.after]
    assert [r.after for r in elected] == ["tikv-3"]
    whole(run)
