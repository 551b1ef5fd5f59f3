"""What columns of ours are called that stand beside a table's own, which may be called anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def free_names(wanted: Sequence[str], columns: Iterable[str]) -> tuple[str, ...]:
    """Names that no column of a table has, in any case of its letters: ``wanted``, or with underscores before it.

    Examples
    --------
    >>> free_names(("_commit_ts", "_op"), ["id", "_COMMIT_TS"])
    ('__commit_ts', '_op')
    """
    taken, found = {c.lower() for c in columns}, []
    for name in wanted:
        free = name
        while free.lower() in taken:
            free = f"_{free}"
        found.append(free)
        taken.add(free.lower())
    return tuple(found)


def found_names(wanted: Iterable[str], columns: Sequence[str]) -> dict[str, str]:
    """What :func:`free_names` called each of ``wanted`` in a frame, where our columns come behind the table's own.

    Examples
    --------
    >>> found_names(("_commit_ts",), ["id", "_commit_ts", "__commit_ts"])
    {'_commit_ts': '__commit_ts'}
    """
    bare = {name: name.lstrip("_") for name in wanted}
    called = {c.lower().lstrip("_"): c for c in columns if c.startswith("_")}
    return {name: called[short] for name, short in bare.items() if short in called}


def said_of(table: str, wanted: Sequence[str], free: Sequence[str]) -> tuple[str, ...]:
    """A sentence where a table has columns that are called like ours."""
    renamed = [(name, other) for name, other in zip(wanted, free, strict=True) if name != other]
    told = ", ".join(f"{other} for {name}" for name, other in renamed)
    return (f"{table} has columns of its own that are called like ours, which say {told} here.",) if renamed else ()
