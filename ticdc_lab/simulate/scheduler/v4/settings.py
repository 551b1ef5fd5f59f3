"""The settings of the newer coordinator and maintainer; the defaults are the real ones where those are times."""

from __future__ import annotations

from dataclasses import dataclass

from ticdc_lab.simulate.scheduler.executor import STEADY, TablePace


@dataclass(frozen=True)
class V4Settings:
    """What can be set."""

    batch_size: int = 1000  # operators at once; also the most that one round of a scheduler begins
    resend_us: int = 500_000  # after this an operator sends its order again, and a maintainer its bootstrap request
    balance_interval_us: int = 5_000_000  # between two looks at the balance
    balance_cooldown_us: int = 120_000_000  # after a drain the balance waits, so that nothing goes back at once
    scheduling_task_count_per_node: int = 1  # parts of one split table that a node may be creating at once
    pace: TablePace = STEADY
    # Whether etcd elects a coordinator, which places the maintainer on any node, moves it and drains nodes. Else who is
    # elected is the maintainer.
    coordinator: bool = False


DEFAULTS = V4Settings()
