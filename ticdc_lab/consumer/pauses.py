"""Time without the pauses of a listener: what it has worked by a moment, and by which moment it has worked so much."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ticdc_lab.consumer.listeners import Pause
from ticdc_lab.consumer.log import Ints


class Pauses:
    """The pauses of one listener, those that overlap as one.

    Parameters
    ----------
    pauses
        In any order.
    """

    def __init__(self, pauses: Iterable[Pause]) -> None:
        spans: list[tuple[int, int]] = []
        for at, until in sorted((p.at_us, p.until_us) for p in pauses if p.until_us > p.at_us):
            if spans and at <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(until, spans[-1][1]))
            else:
                spans.append((at, until))
        self._at, self._until = np.array(spans, np.int64).reshape(-1, 2).T
        self._lost = np.concatenate([[0], np.cumsum(self._until - self._at)])

    def __len__(self) -> int:
        return len(self._at)

    def awake(self, times: Ints) -> Ints:
        """Each moment, or the end of the pause that it lies in."""
        i = np.searchsorted(self._at, times, side="right") - 1
        return np.where(i < 0, times, np.maximum(times, self._until[i]))

    def worked(self, times: Ints) -> Ints:
        """How much of the time up to each moment is not paused, µs."""
        i = np.searchsorted(self._at, times, side="right") - 1
        inside = np.minimum(times, self._until[i]) - self._at[i]
        return np.where(i < 0, times, times - self._lost[i] - inside)

    def when(self, worked: Ints) -> Ints:
        """The first moment by which so much is worked, µs."""
        begins = self._at - self._lost[:-1]
        moments: Ints = worked + self._lost[np.searchsorted(begins, worked, side="left")]
        return moments
