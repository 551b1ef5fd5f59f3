"""What a node knows of a store: all under the prefixes it observes, as of one revision."""

from __future__ import annotations

from typing import NamedTuple

from immutables import Map

from ticdc_lab.simulate.ddl_service.store_messages import Compare, Entry, Happened, Snapshot

Part = Map[str, Entry]


class Mirror(NamedTuple):
    """Keys by prefix, each without it; ``parts`` are in the order of ``prefixes``."""

    revision: int
    prefixes: tuple[str, ...]
    parts: tuple[Part, ...]

    def under(self, prefix: str) -> Part:
        """Give all under one of the prefixes; the same object until something under it changes."""
        return self.parts[self.prefixes.index(prefix)]

    def value(self, key: str) -> str | None:
        """Give the value of a key that is observed by itself."""
        entry = self.under(key).get("")
        return None if entry is None else entry.value

    def mod(self, key: str) -> int:
        """Give the revision at which a key that is observed by itself changed last."""
        entry = self.under(key).get("")
        return 0 if entry is None else entry.mod


def mirrored(prefixes: tuple[str, ...], snapshot: Snapshot) -> Mirror:
    """Give the mirror of a snapshot."""
    parts = []
    for prefix in prefixes:
        cut = len(prefix)
        parts.append(Map({key[cut:]: entry for key, entry in snapshot.entries if key.startswith(prefix)}))
    return Mirror(snapshot.revision, prefixes, tuple(parts))


def updated(mirror: Mirror, happened: Happened) -> Mirror:
    """Take the changes of a revision."""
    parts = list(mirror.parts)
    for key, entry in happened.events:
        for i, prefix in enumerate(mirror.prefixes):
            if key.startswith(prefix):
                own = key[len(prefix) :]
                if entry is not None:
                    parts[i] = parts[i].set(own, entry)
                elif own in parts[i]:
                    parts[i] = parts[i].delete(own)
    return Mirror(happened.revision, mirror.prefixes, tuple(parts))


def winner(campaigns: Part) -> tuple[str, Entry] | None:
    """Give the campaign that has won an election: the one that was created first."""
    return min(campaigns.items(), key=lambda e: (e[1].create, e[0]), default=None)


def unchanged(key: str, entry: Entry | None) -> Compare:
    """Give the condition that a key is as it was seen."""
    return Compare(key, "mod", entry.mod if entry else 0)
