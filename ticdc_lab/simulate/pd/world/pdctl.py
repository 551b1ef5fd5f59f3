"""pd-ctl's commands on a simulated cluster, with the same words.

::

    pdctl(world, "store delete 4")
    pdctl(world, "config set leader-schedule-limit 8")
    pdctl(world, "operator add transfer-leader 2 3")

What pd-ctl prints as JSON is given as dicts and lists. `pd_notes.md` section 11 lists the commands.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ticdc_lab.errors import TiCDCLabError

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.world import World


class Refused(TiCDCLabError):
    """PD says no, or the words are none of pd-ctl's."""


Verb = Callable[["World", list[str]], Any]


def pdctl(world: World, words: str) -> Any:
    """Say something to PD.

    Parameters
    ----------
    world
        The cluster.
    words
        As one types them after ``pd-ctl``.

    Returns
    -------
    Any
        What pd-ctl would print, as dicts and lists; "Success!" for commands.

    Raises
    ------
    Refused
        PD refuses (its error stands in the message, ``ErrStoresNotEnough`` for instance), or it knows no such words.
    """
    verb, rest = read_words(words)
    try:
        return verb(world, rest)
    except (ValueError, IndexError, KeyError) as e:
        raise Refused(f"pd-ctl {words}: {e}", hint="Compare the words with pd-ctl's own help.") from e


def read_words(words: str) -> tuple[Verb, list[str]]:
    """Find the command that words begin with, ``pd-ctl`` before it or not, and what follows it.

    Raises
    ------
    Refused
        There is none.
    """
    verbs = _verbs()
    try:
        said = shlex.split(words)
    except ValueError as e:
        raise Refused(f"pd-ctl {words}: {e}", hint="Quote JSON as a shell wants it, with '...'.") from e
    said = said[1:] if said[:1] == ["pd-ctl"] else said
    if not said or said[0] not in verbs:
        raise Refused(f"pd-ctl {' '.join(said)}: no such command", hint=f"Known: {', '.join(sorted(verbs))}.")
    return verbs[said[0]], said[1:]


def _verbs() -> dict[str, Verb]:
    from ticdc_lab.simulate.pd.world import (
        pdctl_config,
        pdctl_operators,
        pdctl_regions,
        pdctl_schedulers,
        pdctl_stores,
    )

    return {
        "store": pdctl_stores.store,
        "stores": pdctl_stores.stores,
        "region": pdctl_regions.region,
        "operator": pdctl_operators.operator,
        "scheduler": pdctl_schedulers.scheduler,
        "config": pdctl_config.config,
        "hot": pdctl_regions.hot,
        "health": pdctl_stores.health,
    }


def number(word: str, what: str) -> int:
    """Read an id or a count."""
    if not word.isdigit():
        raise Refused(f"{what} {word}: expected a whole number")
    return int(word)


def decimal(word: str, what: str) -> float:
    """Read a rate or a weight, which is not below zero."""
    try:
        found = float(word)
    except ValueError:
        found = -1.0
    if not 0 <= found < math.inf:
        raise Refused(f"{what} {word}: expected a number from 0 on")
    return found


def row_of(world: World, word: str) -> int:
    """Find a region by its id."""
    row = world.regions.row_of.get(number(word, "region"))
    if row is None:
        raise Refused(f"region {word} not found")
    return row


def position_of(world: World, word: str) -> int:
    """Find a store by its id."""
    i = world.regions.at.get(number(word, "store"))
    if i is None or not world.nodes.all[i].known:
        raise Refused(f"ErrStoreNotFound: store {word} not found")
    return i
