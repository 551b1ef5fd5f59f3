"""Which worker owns the DDL of which cluster: balanced, and with as few moves as that takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Plan(NamedTuple):
    """What a leader writes.

    Attributes
    ----------
    changes
        The worker of each cluster whose assignment changes; None where it is deleted.
    moves
        How many clusters leave a worker that lives and go to another.
    because
        In a sentence.
    rejected
        (worker, why it neither gives nor takes).
    """

    changes: dict[str, str | None]
    moves: int
    because: str
    rejected: tuple[tuple[str, str], ...] = ()


def assign(clusters: Iterable[str], workers: Iterable[str], current: Mapping[str, str]) -> Plan:
    """Say what has to change for every cluster to have a worker and no two workers to differ by more than one.

    Parameters
    ----------
    clusters
        Registered ones.
    workers
        Live ones.
    current
        Assignments as they are, also of what is registered or lives no more.

    Returns
    -------
    Plan
        With the fewest moves there can be: those with the most clusters may keep the one more, so every worker gives
        only what is above its share; what has no worker fills the shares first. Names decide between equals.

    Examples
    --------
    >>> plan = assign(["a", "b", "c"], ["worker-1", "worker-2"], {"a": "worker-1", "b": "worker-1", "c": "worker-1"})
    >>> plan.changes, plan.moves
    ({'c': 'worker-2'}, 1)
    >>> plan.because
    '3 clusters on 2 workers: 0 had none, 1 move'
    """
    registered, alive = set(clusters), sorted(workers)
    held: dict[str, list[str]] = {w: [] for w in alive}
    homeless = registered - current.keys()
    changes: dict[str, str | None] = {}
    for name, place in current.items():
        if name not in registered:
            changes[name] = None
        elif place in held:
            held[place].append(name)
        else:
            homeless.add(name)
    if not alive:
        return Plan(changes | dict.fromkeys(homeless & current.keys()), 0, "no worker lives")
    shares = _shares({w: len(own) for w, own in held.items()}, len(registered))
    given = [name for w in alive for name in sorted(held[w])[shares[w] :]]
    waiting = iter([*sorted(homeless), *given])
    for w in alive:
        for _ in range(shares[w] - len(held[w])):
            changes[next(waiting)] = w
    kept = tuple((w, f"has {len(held[w])} clusters, its share") for w in alive if len(held[w]) == shares[w])
    because = f"{len(registered)} clusters on {len(alive)} workers: {len(homeless)} had none, {len(given)} move"
    return Plan(changes, len(given), because, kept)


def _shares(counts: Mapping[str, int], n: int) -> dict[str, int]:
    """Give how many clusters each worker is to have."""
    each, more = divmod(n, len(counts))
    fullest = sorted(counts, key=lambda w: (-counts[w], w))
    return {w: each + (i < more) for i, w in enumerate(fullest)}
