"""Which worker owns the DDL of which cluster: balanced, and with as few moves as that takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
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


NOBODY: Mapping[str, Mapping[str, str]] = MappingProxyType({})


def assign(
    clusters: Iterable[str],
    workers: Iterable[str],
    current: Mapping[str, str],
    refused: Mapping[str, Mapping[str, str]] = NOBODY,
) -> Plan:
    """Say what has to change for every cluster to have a worker and no two workers to differ by more than one.

    Parameters
    ----------
    clusters
        Registered ones.
    workers
        Live ones.
    current
        Assignments as they are, also of what is registered or lives no more.
    refused
        Of each cluster that not every worker can serve, which cannot, and why.

    Returns
    -------
    Plan
        With the fewest moves there can be: those with the most clusters may keep the one more, so every worker gives
        only what is above its share; what has no worker fills the shares first. Names decide between equals. Where
        some cannot serve some clusters, each goes only where it is served, and moves from one to another as long as
        that makes their numbers more even.

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
    if refused and alive:
        return _restricted(registered, alive, current, refused)
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


def _restricted(
    registered: set[str], alive: list[str], current: Mapping[str, str], refused: Mapping[str, Mapping[str, str]]
) -> Plan:
    """Assign where not every worker can serve every cluster: those with the least choice first."""
    able = {c: [w for w in alive if w not in refused.get(c, ())] for c in registered}
    after = {c: w for c, w in current.items() if w in able.get(c, ())}
    counts = Counter(after.values())
    for name in sorted(registered - after.keys(), key=lambda c: (len(able[c]), c)):
        if able[name]:
            after[name] = min(able[name], key=lambda w: (counts[w], w))
            counts[after[name]] += 1
    while step := _evener(after, able, counts):
        name, place = step
        counts[after[name]] -= 1
        counts[place] += 1
        after[name] = place
    changes = {c: after.get(c) for c in registered | current.keys() if current.get(c) != after.get(c)}
    moves = sum(c in current and current[c] in alive and w is not None for c, w in changes.items())
    left = sorted(registered - after.keys())
    why = tuple((f"{c} on {w}", because) for c in sorted(refused) for w, because in sorted(refused[c].items()))
    because = f"{len(registered)} clusters on {len(alive)} workers, of which not all serve all: {moves} move"
    return Plan(changes, moves, because + (f"; nobody can serve {', '.join(left)}" if left else ""), why)


def _evener(
    after: Mapping[str, str], able: Mapping[str, list[str]], counts: Mapping[str, int]
) -> tuple[str, str] | None:
    """Give a cluster and a worker that has two fewer than the one it is on."""
    for name in sorted(after):
        place = min(able[name], key=lambda w: (counts[w], w))
        if counts[after[name]] - counts[place] > 1:
            return name, place
    return None


def _shares(counts: Mapping[str, int], n: int) -> dict[str, int]:
    """Give how many clusters each worker is to have."""
    each, more = divmod(n, len(counts))
    fullest = sorted(counts, key=lambda w: (-counts[w], w))
    return {w: each + (i < more) for i, w in enumerate(fullest)}
