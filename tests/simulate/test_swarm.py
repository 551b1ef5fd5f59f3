"""Scenarios that a seed draws whole: faults come, end, and the run becomes live."""

import json
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner
from exploring import seeds
from planted_ddl import planted as planted_ddl
from planted_pipeline import FRONTIER_MAX, SENT_IS_WRITTEN, planted
from planted_schedulers import PROMOTE_EARLY
from planted_schedulers import planted as planted_scheduler

from ticdc_lab.cli import main
from ticdc_lab.ddl_core.server_state import Submit
from ticdc_lab.ddl_core.sysvars import VARIABLES, WORKERS
from ticdc_lab.errors import ContractError
from ticdc_lab.simulate.ddl_service.planned import drawn_load
from ticdc_lab.simulate.faults import Ask
from ticdc_lab.simulate.scheduler.v4 import operators
from ticdc_lab.simulate.swarm import Fallen, fallen, swarm


def _not_held(model: str, seed: int) -> list[Fallen]:
    return list(fallen(model, range(seed, seed + 1)))


@pytest.mark.parametrize("seed", seeds([0, 1], of=range(4)))
@pytest.mark.parametrize("model", ["changefeeds", "ddl-service", "scheduler"])
def test_what_a_seed_draws_is_live_in_its_end(model: str, seed: int) -> None:
    """Faults are behind it."""
    assert _not_held(model, seed) == []


SOAK = {"scheduler": 100, "ddl-service": 100, "pipeline": 16, "changefeeds": 16, "pd": 8}


@pytest.mark.soak
@pytest.mark.parametrize(
    ("model", "seed"),
    [(model, seed) for model, n in SOAK.items() for seed in range(n)],
)
def test_many_seeds_are_live_in_their_end(model: str, seed: int) -> None:
    """The swarm's longer run."""
    assert _not_held(model, seed) == []


@pytest.mark.parametrize("variant", ["v2", "v3", "v4"])
def test_a_variant_can_be_asked_for(variant: str) -> None:
    """Each seed draws a scenario that the variant takes."""
    drawn = [swarm("scheduler", seed, {"variant": variant}) for seed in range(30)]
    assert {one.variant for one in drawn} == {variant}
    assert not list(fallen("scheduler", range(2), {"variant": variant}))


@pytest.mark.parametrize("variant", ["v2", "v3", "v4"])
def test_a_session_ends_where_its_capture_hears_of_it_before_another_one_writes(variant: str) -> None:
    """TiCDC's assumption: who loses its session stops at once. With up to 100 ms on the way two wrote (v4, 9002)."""
    drawn = [swarm("scheduler", seed, {"variant": variant}) for seed in [*range(120), 9002]]
    ends = ["expire_session" in one.text for one in drawn]
    for one, ends_one in zip(drawn, ends, strict=True):
        link, resend_us = one.network.link(), one.network.network().resend_us
        late_us = link.delay_us[1] * (2 if link.reorder else 1) + (6 * resend_us if link.loss else 0)
        assert not ends_one or late_us < 2 * link.delay_us[0] + one.settings.pace.prepare_us
    assert 20 < sum(ends) < 60 and not ends[-1]


SEEN = {"waits for nobody": 0, "shares the ddl id": 0, "shows topology": 0, "keeps on": 1, "takes any version": 6,
        "runs any job": 5, "asks no cluster": 6, "bootstraps without the lock": 0}  # fmt: skip
"""Planted bugs of DDL as a Service, and a seed that shows each."""


@pytest.mark.parametrize("bug", SEEN)
def test_the_swarm_of_ddl_as_a_service_sees_what_is_planted(bug: str) -> None:
    """And the seed holds without it."""
    assert _not_held("ddl-service", SEEN[bug]) == []
    with planted_ddl(bug):
        assert len(_not_held("ddl-service", SEEN[bug])) == 1


def test_the_swarm_of_ddl_as_a_service_leaves_backfills_their_time() -> None:
    """One worker and batches of 64 rows, as users may want, after the faults and two leases (seed 7712)."""
    longest_us = 0
    for seed in range(100):
        scenario = swarm("ddl-service", seed)
        load = drawn_load(
            scenario.settings, until_us=scenario.load.until_us, every_us=scenario.load.every_us, seed=seed
        )
        rows = Counter[str]()
        for fault in load:
            if isinstance(fault, Ask) and isinstance(fault.command, Submit):
                rows[fault.node.split("/")[0]] += fault.command.rows
        rows["cluster1"] += sum(event.what.rows for event in scenario.events if event.name.startswith("ddl "))
        duties = scenario.settings.duties
        takes_us = max(rows.values()) * duties.batch_us * int(VARIABLES[WORKERS].default) // 64
        longest_us = max(longest_us, takes_us)
        assert scenario.settling is not None
        rests_us = scenario.settling.quiet_us + 2 * duties.terms.ttl_us + scenario.settling.for_us
        assert rests_us + takes_us < scenario.until_us
    assert longest_us > 10_000_000


def test_a_seed_draws_the_same_again_and_an_unknown_model_is_refused() -> None:
    """So that a failure can be detected by its number."""
    assert swarm("pipeline", 3).text == swarm("pipeline", 3).text != swarm("pipeline", 4).text
    with pytest.raises(ContractError, match="no swarm of rain"):
        swarm("rain", 1)


def _command(*args: str) -> Any:
    return CliRunner().invoke(main, ["simulate", *args])


def test_the_command_runs_what_seeds_draw_and_says_that_all_held() -> None:
    """Exit 0; as JSON one object."""
    done = _command("scheduler", "--swarm", "--seeds", "0..1", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"model": "scheduler", "seeds": [0, 1], "runs": 2, "not_held": []}


def test_a_seed_that_does_not_hold_is_told_with_the_command_that_gives_it_again() -> None:
    """Which is tried: it fails in the same way. The bug is planted."""
    with planted(SENT_IS_WRITTEN):
        many = _command("pipeline", "--swarm", "--seeds", "5..9", "--set", "until=20s")
        assert many.exit_code == 1
        told = many.stdout.splitlines()
        again = told[1].strip().split()
        assert again[:4] == ["ticdc-lab", "simulate", "pipeline", "--swarm"]
        once = _command(*again[2:])
    assert once.exit_code == 1 and "VIOLATED" in once.stdout
    assert told[0].partition(": ")[2].split(": ")[0] in once.stdout


def _moved_at_once() -> Any:
    """A move of v4 asks the destination before the origin has stopped."""
    kind, phase = operators.MOVE, operators.REMOVE_ORIGIN
    hasty = {(kind, phase, operators.BEGUN): operators.TURNS[kind, phase, operators.ORIGIN_STOPPED]}
    return patch.object(operators, "TURNS", {**operators.TURNS, **hasty})


PLANTED = {
    "v2: the checkpoint is not the least": (
        lambda: planted_scheduler("skips_minimum"), "scheduler", "v2", 0, "No Lost Table",
    ),
    "v2: dispatched before all have synced": (
        lambda: planted_scheduler("dispatches_before_sync"), "scheduler", "v2", 2, "No Double Write",
    ),
    "v3: promoted early": (lambda: planted_scheduler(PROMOTE_EARLY), "scheduler", "v3", 1, "No Double Write"),
    "v4: moved at once": (_moved_at_once, "scheduler", "v4", 1, "No Double Write"),
    "changefeeds: sent is written": (lambda: planted(SENT_IS_WRITTEN), "changefeeds", "", 0, "Processor Checkpoint"),
    "changefeeds: the greatest frontier": (lambda: planted(FRONTIER_MAX), "changefeeds", "", 1, "Transactions Whole"),
}  # fmt: skip


@pytest.mark.parametrize("bug", PLANTED)
def test_a_seed_catches_a_planted_bug(bug: str) -> None:
    """By the invariant that it breaks; without the bug the same seed holds."""
    plant, model, variant, seed, breaks = PLANTED[bug]
    changes = {"variant": variant} if variant else {}
    assert not list(fallen(model, range(seed, seed + 1), changes))
    with plant():
        (found,) = fallen(model, range(seed, seed + 1), changes)
    assert breaks in " ".join(found.because)


def test_a_run_that_ends_in_an_error_has_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported like the others, and the next seed is run."""
    scenario = swarm("scheduler", 1)
    monkeypatch.setattr(type(scenario.model), "play", property(lambda _: _raises), raising=False)
    assert [f.because for f in fallen("scheduler", range(2))] == [("IndexError: a bug",)] * 2


def _raises(*_: Any, **__: Any) -> None:
    raise IndexError("a bug")


@pytest.mark.parametrize("args", [["x.yaml", "--swarm"], [], ["x.yaml", "--swarm", "--seeds", "0..1"],
                                  ["--swarm", "--seeds", "0..1", "--seed", "3"]])  # fmt: skip
def test_a_swarm_has_no_file(args: list[str]) -> None:
    """And a run has either."""
    assert _command("ddl-service", *args).exit_code == 2


NOT_DRAWN = {
    "scheduler": {
        "clock", "free_table", "heal", "join", "link", "lose", "merge_spans", "partition", "resume", "split_table",
        "two_owners",
    },
    "pipeline": {
        "clock", "drain", "drop_table", "expire_session", "free_table", "heal", "join", "link", "long_transaction",
        "lose", "merge", "move_table", "partition", "rebalance", "refuse", "restart_processor", "resume", "slow_sink",
        "standing_sink", "stuck_table", "transfer_leader", "two_owners",
    },
    "changefeeds": {
        "clock", "drop_table", "expire_session", "heal", "join", "link", "long_transaction", "lose", "merge",
        "partition", "refuse", "resume", "transfer_leader", "two_owners",
    },
    "ddl-service": {
        "break_session", "cancel", "clock", "expire_session", "heal", "link", "partition", "resume", "set_instance",
        "show_ddl", "slow_server", "unregister",
    },
    "pd": set(),
}  # fmt: skip
"""Rows of each model's table of events that no seed draws; partitions and clocks come as random faults."""


@pytest.mark.parametrize("model", NOT_DRAWN)
def test_every_event_of_a_model_is_drawn_or_known_not_to_be(model: str) -> None:
    """A row that is added to the table is drawn too, or stands above."""
    scenarios = [swarm(model, seed) for seed in range(1, 121)]
    drawn = {e.kind for s in scenarios for e in s.events} | {f for s in scenarios for r in s.random for f in r.faults}
    assert set(scenarios[0].model.events) - drawn == NOT_DRAWN[model]
