"""The settings of the newer coordinator and maintainer; the defaults are the real ones where those are times."""

from __future__ import annotations

from dataclasses import dataclass

from ticdc_lab.simulate.scheduler.executor import STEADY, TablePace


@dataclass(frozen=True, slots=True)
class V4Settings:
    """What can be set.

    Attributes
    ----------
    batch_size
        Operators at once; also the most that one round of a scheduler begins.
    resend_us
        After this an operator sends its order again, and a maintainer its bootstrap request.
    balance_interval_us
        Between two looks at the balance.
    balance_cooldown_us
        After a drain the balance waits, so that nothing goes back at once.
    scheduling_task_count_per_node
        Parts of one split table that a node may be creating at once.
    """

    batch_size: int = 1000
    resend_us: int = 500_000
    balance_interval_us: int = 5_000_000
    balance_cooldown_us: int = 120_000_000
    scheduling_task_count_per_node: int = 1
    pace: TablePace = STEADY


DEFAULTS = V4Settings()
