"""Whole captures run the protocol under faults: never two writers, and everything replicates once the faults end."""

from __future__ import annotations

from types import MappingProxyType

import pytest
from exploring import seeds

from ticdc_lab.machines.clock import us_of
from ticdc_lab.simulate.faults import Ask, Chaos, Crash
from ticdc_lab.simulate.network import DATAGRAM, Link, Network
from ticdc_lab.simulate.scheduler import run, variants
from ticdc_lab.simulate.scheduler.capture import Variant
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD
from ticdc_lab.simulate.scheduler.roles import Drain, MoveTable
from ticdc_lab.simulate.scheduler.v4 import TO_OWNER, Dispatchers, Maintainer, V4Settings
from ticdc_lab.simulate.scheduler.v4 import settings as v4_settings
from ticdc_lab.simulate.trace import NOTHING

CAPTURES = ("capture-1", "capture-2", "capture-3")
QUIET_US, END_US = 20_000_000, 45_000_000
QUICK = V4Settings(batch_size=4, balance_interval_us=1_000_000)
STEADY_ETCD = tuple(((a, b), Link((1000, 1000))) for c in CAPTURES for a, b in ((c, ETCD), (ETCD, c)))
DATAGRAMS = Network(Link((500, 60_000), loss=0.1, duplicate=0.1, reorder=0.2), STEADY_ETCD, DATAGRAM)
STREAMS = Network(Link((500, 60_000), loss=0.1, duplicate=0.1, reorder=0.2))
LOCAL = ("crash", "restart", "pause", "refuse", "skew")


@pytest.fixture(autouse=True)
def _with_v4(monkeypatch: pytest.MonkeyPatch) -> None:
    variant = Variant("v4", Maintainer(QUICK), Dispatchers(QUICK), TO_OWNER)
    monkeypatch.setattr(variants, "VARIANTS", MappingProxyType({**variants.VARIANTS, "v4": lambda *_, **__: variant}))


def simulated(seed: int, *, stops_at_violation: bool = True) -> run.SchedulerRun:
    """Run three captures under the faults of a seed: over datagrams with even ones, over streams with odd ones."""
    network, kinds = (STREAMS, Chaos(0).kinds) if seed % 2 else (DATAGRAMS, LOCAL)
    chaos = Chaos(QUIET_US, kinds=kinds)
    return run.simulate(
        run.SchedulerSettings(variant="v4"), chaos=chaos, seed=seed, until_us=END_US, network=network,
        stops_at_violation=stops_at_violation,
    )  # fmt: skip


def runs_where(found: run.SchedulerRun) -> dict[int, list[str]]:
    """Give who replicates each table."""
    where: dict[int, list[str]] = {table: [] for table in range(1, 9)}
    for node in sorted(set(found.kernel.states) - {ETCD}):
        for key, pipeline in found.kernel.states[node].processor.executor.pipelines.items():
            assert pipeline.state == "replicating"
            where[key].append(node)
    return where


def holds(seed: int) -> None:
    """Check a run: safe at every step, and in its end everything runs, evenly, and the checkpoint follows."""
    found = simulated(seed)
    assert found.violation is None, found.violation
    where = runs_where(found)
    assert all(len(nodes) == 1 for nodes in where.values()), where
    loads = [sum(nodes == [node] for nodes in where.values()) for node in set(found.kernel.states) - {ETCD}]
    assert max(loads) - min(loads) <= 1, where
    assert found.kernel.now_us - us_of(found.kernel.states[ETCD].checkpoint_ts) < 2_000_000


@pytest.mark.parametrize("seed", seeds(range(4), of=range(12)))
def test_faults_break_nothing_and_end_in_order(seed: int) -> None:
    """Lost, late, doubled messages, dying nodes, a maintainer that changes: safety always, liveness in the end."""
    holds(seed)


@pytest.mark.soak
def test_many_seeds_break_nothing() -> None:
    """The same over hundreds of seeds."""
    for seed in range(12, 400):
        holds(seed)


@pytest.mark.soak
def test_131072_tables_are_scheduled_evenly() -> None:
    """From nothing, on 8 captures."""
    big = run.simulate(
        run.SchedulerSettings(variant="v4", captures=8, tables=131_072), until_us=90_000_000, level=NOTHING
    )
    nodes = sorted(set(big.kernel.states) - {ETCD})
    assert big.violation is None
    assert [len(big.kernel.states[node].processor.executor.pipelines) for node in nodes] == [16_384] * 8


def test_a_run_is_the_same_byte_for_byte() -> None:
    """One seed, one trace."""
    assert simulated(4).trace.equals(simulated(4).trace)


def test_a_drained_capture_ends_without_tables() -> None:
    """And gets none back while it is the target."""
    ask = Ask(5_000_000, "capture-1", Drain("capture-1"))
    asks = [Ask(5_000_000, capture, Drain("capture-1")) for capture in CAPTURES[1:]]
    found = run.simulate(run.SchedulerSettings(variant="v4"), faults=[ask, *asks], seed=1, until_us=20_000_000)
    if found.kernel.states["capture-1"].owner is None:
        assert not found.kernel.states["capture-1"].processor.executor.pipelines
    assert found.violation is None and all(len(nodes) == 1 for nodes in runs_where(found).values())


def test_a_user_moves_a_table_without_a_gap_in_its_rows() -> None:
    """It goes where it was asked to, and the auditor sees neither a double write nor a lost row."""
    asks = [Ask(5_000_000, capture, MoveTable(1, to)) for capture in CAPTURES for to in ("capture-3", "capture-2")]
    found = run.simulate(run.SchedulerSettings(variant="v4"), faults=asks, seed=1, until_us=5_900_000)
    assert found.violation is None and found.measures.overlap_us == 0
    assert runs_where(found)[1] in (["capture-3"], ["capture-2"])


def test_the_tables_of_a_lost_capture_go_to_the_others() -> None:
    """Also when it was the maintainer's: the next one bootstraps and continues."""
    for capture in CAPTURES:
        found = run.simulate(
            run.SchedulerSettings(variant="v4"), faults=[Crash(5_000_000, capture)], seed=2, until_us=25_000_000
        )
        alive = sorted(set(found.kernel.states) - {ETCD, capture})
        where = [key for node in alive for key in found.kernel.states[node].processor.executor.pipelines]
        assert found.violation is None and sorted(where) == list(range(1, 9))


def test_the_defaults_are_the_real_ones() -> None:
    """A batch of 1000, orders again after half a second, a look at the balance each five."""
    defaults = v4_settings.DEFAULTS
    assert (defaults.batch_size, defaults.resend_us, defaults.balance_interval_us) == (1000, 500_000, 5_000_000)
