"""Every planted bug of a store is caught by the rule that it breaks; the same run without it keeps all rules."""

from __future__ import annotations

import pytest
from one_store import COMMITTED_1, INITIALIZED, LOCKED_2, TS, at_ts5, scanned
from planted_pipeline import planted
from tikv_world import TABLE, Client, world

from ticdc_lab.simulate import faults as fault
from ticdc_lab.simulate.pipeline.cdc_messages import Entries
from ticdc_lab.simulate.pipeline.kv_messages import Split, TransferLeader
from ticdc_lab.simulate.pipeline.tables import key_of

SECOND = 1_000_000
KEYS = [key_of(TABLE, h) for h in range(0, 1000, 20)]
KEY = KEYS[5]
CUT_OFF = tuple(fault.Part(SECOND, "tikv-2", other, for_us=2 * SECOND) for other in ("tikv-1", "tikv-3", "pd"))
BACK_AND_FORTH = tuple(
    fault.Ask(SECOND + i * 100_000, f"tikv-{2 + i % 2}", TransferLeader(KEY, f"tikv-{3 - i % 2}")) for i in range(20)
)
DIVIDED = (fault.Ask(SECOND, "tikv-2", Split(KEY)),)


def busy():
    """Transactions all the time."""
    return Client(1, KEYS, 4 * SECOND)


def calm():
    """One transaction after the other, with time between them: nothing is locked when a fault comes."""
    return Client(1, KEYS, 4 * SECOND, concurrency=1, pause_us=40_000)


def violated(run):
    """Something was committed at or below a resolved_ts and came after it."""
    return run.subscriber.violations != []


def missing(run):
    """Something that is committed never came."""
    return not run.committed().keys() <= run.subscriber.seen.keys()


def unmatched(run):
    """A commit came without its prewrite."""
    return any("without its prewrite" in problem for problem in run.subscriber.problems)


BUGS = {
    "ignores_locks": ((), busy, 0, violated),
    "resolves_alone": (CUT_OFF, calm, 0, missing),
    "scan_misses_locks": (BACK_AND_FORTH, busy, 0, unmatched),
    "streams_after_scan": ((), busy, SECOND, missing),
    "keeps_streams_at_split": (DIVIDED, busy, 0, missing),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_run_shows_the_bug(bug):
    """With the bug the rule is broken, without it no rule is."""
    faults, client, start_us, broken = BUGS[bug]
    with planted(bug):
        assert broken(world(seed=1, faults=faults, client=client(), start_us=start_us))
    sound = world(seed=1, faults=faults, client=client(), start_us=start_us)
    assert not violated(sound) and not missing(sound) and not unmatched(sound)


def test_a_scan_of_its_checkpoint_too_repeats_it():
    """``scans_checkpoint_too``: the version at the checkpoint_ts comes again, which the rule excludes."""
    with planted("scans_checkpoint_too"):
        assert scanned(at_ts5(), TS[4]) == [Entries(7, 1, (COMMITTED_1, LOCKED_2, INITIALIZED))]


def test_what_no_majority_has_is_not_observed():
    """``observes_early``: a leader that is cut off streams what is lost with it, or what comes in another order."""
    with planted("observes_early"):
        with_bug = world(seed=1, faults=CUT_OFF)
    assert missing(with_bug) or unmatched(with_bug)
    assert not missing(world(seed=1, faults=CUT_OFF))
