"""Clients that register, remove and list at once, through all workers, and write down what they were answered."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from linearizable import ABSENT, CONFLICT, NEVER, OK, UNKNOWN, Call

from ticdc_lab.ddl_service.client import Client, ServiceError

TOLD = {409: CONFLICT, 404: ABSENT}
ALL = ("put", "put", "delete", "list")
NOTHING = "nothing was written"


def history(
    clients: Sequence[Client],
    number: int,
    chance: random.Random,
    *,
    calls: int = 5,
    pds: Sequence[int] = (1, 2, 3),
    kinds: Sequence[Sequence[str]] = (),
    fault: Callable[[], None] | None = None,
) -> list[Call]:
    """Let each client make some calls about two clusters and three PDs that no other history has.

    Parameters
    ----------
    clients
        One for each that calls at once; two may ask the same worker.
    number
        Of the history.
    chance
        Draws who asks what.
    calls
        Of each client.
    pds
        How many there are, one of these: the fewer, the more calls meet.
    kinds
        What each of the first clients may ask; the others ask everything.
    fault
        Happens meanwhile.
    """
    names, n_pds = chance.choice(("a", "ab")), chance.choice(pds)
    asked = [*kinds, *[ALL] * (len(clients) - len(kinds))]
    plans = [[_drawn(chance, number, names, n_pds, own) for _ in range(calls)] for own in asked]
    with ThreadPoolExecutor(len(clients) + 1) as pool:
        happens = pool.submit(fault) if fault else None
        told = [pool.submit(_called, client, plan, number) for client, plan in zip(clients, plans, strict=True)]
        if happens:
            happens.result()
        return [call for found in told for call in found.result()]


def _drawn(
    chance: random.Random, number: int, names: str, n_pds: int, kinds: Sequence[str]
) -> tuple[str, str, tuple[str, ...]]:
    what = chance.choice(kinds)
    pds = tuple(chance.sample([f"h{number}-{i}:1" for i in range(n_pds)], min(n_pds, chance.choice((1, 1, 2)))))
    return what, f"c{number}-{chance.choice(names)}", pds


def _called(client: Client, plan: Sequence[tuple[str, str, tuple[str, ...]]], number: int) -> list[Call]:
    found = []
    for what, name, pds in plan:
        begun_s = time.monotonic()
        try:
            seen = _asked(client, what, name, pds, number)
            found.append(Call(what, begun_s, time.monotonic(), OK, name, pds, seen))
        except ServiceError as error:
            said = TOLD.get(error.status, UNKNOWN)
            if said is not UNKNOWN:
                found.append(Call(what, begun_s, time.monotonic(), said, name, pds))
            elif what != "list" and NOTHING not in error.message:
                found.append(Call(what, begun_s, NEVER, UNKNOWN, name, pds))
    return found


def _asked(
    client: Client, what: str, name: str, pds: tuple[str, ...], number: int
) -> frozenset[tuple[str, tuple[str, ...]]]:
    if what == "put":
        client.register(name, f"tikv://{','.join(pds)}")
    elif what == "delete":
        client.remove(name)
    else:
        own = [c for c in client.clusters() if c.id.startswith(f"c{number}-")]
        return frozenset((c.id, tuple(c.store_addr.removeprefix("tikv://").split(","))) for c in own)
    return frozenset()
