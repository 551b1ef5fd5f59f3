"""What the runs of all models that the kernel plays have in common: how one ended, and how to have it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from ticdc_lab.simulate.faults import Fault, replanned
from ticdc_lab.simulate.kernel import End, Kernel, Violation
from ticdc_lab.simulate.network import Network

QUIET = Network()
SettingsOf = TypeVar("SettingsOf")


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SimulatedRun(Generic[SettingsOf]):
    """What happened.

    Attributes
    ----------
    settings, faults, seed, until_us, network, level
        What gives this run again.
    end
        How it ended.
    simulate
        Runs the same world with other of these, and all else as it was.
    """

    settings: SettingsOf
    faults: tuple[Fault, ...]
    seed: int
    until_us: int
    network: Network
    level: str
    end: End
    kernel: Kernel = field(repr=False)
    simulate: Callable[..., Any] = field(repr=False)

    @property
    def violation(self) -> Violation | None:
        """The invariant that does not hold, if one does not."""
        return self.end.violation

    @property
    def trace(self) -> pa.Table:
        """The trace as an Arrow table (:data:`ticdc_lab.simulate.trace.TRACE`)."""
        return self.kernel.recorder.table()

    @property
    def messages(self) -> int:
        """How many were sent."""
        return self.kernel.n_sent

    def again(self, at_us: int, faults: Sequence[Fault]) -> Self:
        """Run once more with other faults from ``at_us`` on: the same world up to there.

        Nodes that would have joined later still do, unless another ``Join`` says when: without one they would be there
        from the beginning.

        Raises
        ------
        ValueError
            A new fault lies before ``at_us``.
        """
        found: Self = self.simulate(
            faults=replanned(self.faults, at_us, faults), seed=self.seed, until_us=self.until_us, network=self.network,
            level=self.level,
        )  # fmt: skip
        return found
