"""Planted bugs: each breaks one rule, and the auditor must see it, or our checks cannot fail."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from immutables import Map
from planted_ddl import planted

from ticdc_lab.ddl_core.checks import (
    BALANCED,
    HIDDEN,
    IN_ORDER,
    KEPT,
    NEIGHBOURS,
    ONE_OWNER,
    ONE_UPGRADE,
    OWN_IDS,
    OWN_VARIABLES,
    OWNED,
    SERVED,
    SUPPORTED,
)  # fmt: skip
from ticdc_lab.ddl_core.keys import PD, store_of
from ticdc_lab.ddl_core.server_state import Habits, SetVariable, Submit
from ticdc_lab.ddl_core.sysvars import BATCH, WORKERS
from ticdc_lab.ddl_core.worker_state import Register
from ticdc_lab.simulate.ddl_service.run import ServiceRun, simulate
from ticdc_lab.simulate.ddl_service.world import ServiceSettings
from ticdc_lab.simulate.faults import Ask, Crash, Fault, Join, Part, Relink
from ticdc_lab.simulate.network import Link

SECOND = 1_000_000
FIRST = "cluster1/tidb-1"
STATEMENT = Submit("add index", "orders", "by_day", rows=2000)
INDEX = Ask(3 * SECOND, FIRST, STATEMENT)
OWNER = "ddl-service-node-1"
"""Of the first cluster, with seed 0."""

THREE = ServiceSettings(workers=3, clusters=3)
_SLOW: ServiceSettings = ServiceSettings(slow=Map({"cluster1/tidb-2": Habits(load_us=600_000)}))
_CUT: tuple[Fault, ...] = (
    *(Part(2_900_000, OWNER, peer, for_us=12 * SECOND) for peer in (PD, store_of("cluster1"))),
    INDEX,
)
_LATE: tuple[Fault, ...] = (
    INDEX,
    Relink(3_080_000, OWNER, store_of("cluster1"), Link((9 * SECOND, 9 * SECOND)), for_us=100_000),
    Crash(3_200_000, OWNER),
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted bug.

    Attributes
    ----------
    bug
        Its name: which rule is replaced, and by what, is in :data:`planted_ddl.PLANTED`.
    breaks
        The rule, in a sentence.
    invariant
        What catches it.
    faults, settings
        The run that shows it; without the bug the same run is clean.
    """

    bug: str
    breaks: str
    invariant: str
    faults: tuple[Fault, ...] = (INDEX,)
    settings: ServiceSettings = THREE

    def run(self, *, sound: bool = False) -> ServiceRun:
        """Run it, or the same without the bug."""
        with nullcontext() if sound else planted(self.bug):
            return simulate(self.settings, faults=self.faults, until_us=25 * SECOND)


MUTANTS: tuple[Mutant, ...] = (
    Mutant("keeps on", "A worker owns nothing when its session may be gone.", ONE_OWNER, _CUT),
    Mutant("writes without its campaign", "What an owner of the past still sends changes nothing.", IN_ORDER, _LATE),
    Mutant("waits for nobody", "A job goes on when every server has the last version.", NEIGHBOURS, settings=_SLOW),
    Mutant(
        "tells GC nothing",
        "GC keeps what a backfill reads: the owner publishes its min start ts.",
        KEPT,
        (Ask(3 * SECOND, FIRST, Submit("add index", "orders", "by_day", rows=50_000)),),
    ),
    Mutant(
        "shares variables",
        "A variable of scope global is the cluster's, not the process's.",
        OWN_VARIABLES,
        (Ask(2 * SECOND, "cluster2/tidb-1", SetVariable(BATCH, "64")), INDEX),
        ServiceSettings(workers=1, clusters=2),
    ),
    Mutant(
        "never reloads variables",
        "A session of an owner begins with the cluster's global value, and keeps up with it.",
        OWN_VARIABLES,
        (
            Ask(2 * SECOND, FIRST, SetVariable(BATCH, "64")),
            Ask(14 * SECOND, FIRST, STATEMENT),
        ),
    ),
    Mutant(
        "shares the ddl id",
        "Owners of different clusters in one worker have different DDL ids.",
        OWN_IDS,
        (),
        ServiceSettings(workers=1, clusters=2),
    ),
    Mutant(
        "shares the infosyncer",
        "Each owner has an infosyncer of its own, with the store of its cluster.",
        OWN_IDS,
        (Ask(3 * SECOND, "cluster2/tidb-1", STATEMENT),),
        ServiceSettings(workers=1, clusters=2),
    ),
    Mutant("shows server info", "No server info of a worker is in a cluster: users would see its address.", HIDDEN),
    Mutant("shows topology", "TiDB-Dashboard of a cluster knows no worker.", HIDDEN),
    Mutant(
        "asks no cluster",
        "A PUT says no version: the service asks the cluster, and takes none that it cannot serve.",
        SUPPORTED,
        (Ask(3 * SECOND, OWNER, Register("cluster3", store_of("cluster3"))),),
        ServiceSettings(unregistered=1, cluster_versions=Map({"cluster3": "v9.0.0"})),
    ),
    Mutant(
        "shares sessions",
        "Owners of several clusters in one process have sessions of their own.",
        OWN_VARIABLES,
        (
            Ask(2 * SECOND, FIRST, SetVariable(WORKERS, "16")),
            INDEX,
            INDEX._replace(at_us=9 * SECOND, node="cluster2/tidb-1"),
        ),
        ServiceSettings(workers=1, clusters=2),
    ),
    Mutant(
        "takes any version",
        "No cluster is newer than the service.",
        SUPPORTED,
        (Ask(3 * SECOND, OWNER, Register("cluster9", "tikv://nine:2379", "v9.0.0")),),
    ),
    Mutant(
        "runs any job",
        "A job of a version that is not supported any more is rejected.",
        SUPPORTED,
        (Ask(3 * SECOND, FIRST, Submit("add column", "orders", "day", version="v5.0.0")),),
    ),
    Mutant(
        "runs any job",
        "A drop of such a version is rejected too, though once begun it cannot be taken back.",
        SUPPORTED,
        (
            Ask(2 * SECOND, FIRST, Submit("create table", "old")),
            Ask(5 * SECOND, FIRST, Submit("drop table", "old", version="v5.0.0")),
        ),
    ),
    Mutant(
        "ignores removals",
        "A worker stops the owner of a cluster that is assigned to another.",
        OWNED,
        (Join(5 * SECOND, "ddl-service-node-3"),),
    ),
    Mutant("keeps the lost", "The clusters of a worker that is gone go to others.", OWNED, (Crash(5 * SECOND, OWNER),)),
    Mutant(
        "never rebalances",
        "A worker that joins gets its share.",
        BALANCED,
        (Join(5 * SECOND, "ddl-service-node-3"),),
        ServiceSettings(workers=3, clusters=6),
    ),
    Mutant(
        "serves on",
        "A server whose schema lease may be over serves nobody.",
        NEIGHBOURS,
        (Part(2_900_000, "cluster1/tidb-2", store_of("cluster1"), for_us=12 * SECOND), INDEX),
    ),
    Mutant(
        "publishes first",
        "A server publishes a schema version when it uses it, not before.",
        NEIGHBOURS,
        settings=_SLOW,
    ),
    Mutant(
        "serves unverified",
        "A new server serves when what it has published is still the newest.",
        NEIGHBOURS,
        (Join(2_800_000, "cluster1/tidb-2"), INDEX),
        _SLOW,
    ),
    Mutant(
        "bootstraps as the owner",
        "The meta is upgraded under a lock of its own, for the DDL owner may be in the service.",
        SERVED,
        (),
        ServiceSettings(bootstrapped="v6.1.0"),
    ),
    Mutant(
        "bootstraps without the lock",
        "One tidb-server at a time upgrades the meta.",
        ONE_UPGRADE,
        (),
        ServiceSettings(bootstrapped="v6.1.0"),
    ),
)
"""Of workers, then of tidb-servers."""
