"""What a changefeed was set to: a value for each setting, where it is known from, and how surely.

A setting is known from an option, from a changefeed file, or from the log's own bytes. Everything
that depends on one asks :class:`Settings`; nothing is passed by hand beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ticdc_lab.errors import ContractError
from ticdc_lab.errors.redaction import HIDDEN, is_secret
from ticdc_lab.settings.keys import KNOWN, full_name

Source = Literal["option", "file", "bytes"]
Surety = Literal["given", "verified", "shown", "likely", "guessed"]
"""``given``: it was set. ``verified``: and all rows of the log were compared with it. ``shown``: the bytes allow
no other value. ``likely``: they fit another value too, which would need a coincidence. ``guessed``: too few bytes to
decide."""

Value = bool | int | str | tuple[Any, ...] | Mapping[str, Any] | None

NOT_COMPARED = frozenset({"sink.dispatchers"})
"""Settings where two values may mean the same, so that a difference is no contradiction."""

OLD_VALUES = "enable-old-value"
"""Of TiCDC up to v7: whether any image before a change is written."""

NOT_EVALUATED = (
    "ignore-insert-value-expr", "ignore-update-new-value-expr", "ignore-update-old-value-expr",
    "ignore-delete-value-expr", "ignore-update-only-columns", "ignore-sql",
)  # fmt: skip
"""Keys of an event filter that leave out what their expression takes: TiDB evaluates it on rows that no log has."""

_RANK = {"option": 0, ("bytes", "shown"): 1, "file": 2, ("bytes", "likely"): 3, ("bytes", "guessed"): 4}
"""Which of several values of one setting is used. What the bytes show cannot be otherwise, with any file."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a changefeed."""

    # Its path in the changefeed file, such as ``sink.csv.binary-encoding-method``; one of
    # :data:`ticdc_lab.settings.keys.KNOWN`.
    name: str
    value: Value  # as TOML has it
    source: Source  # where it is known from
    sure: Surety = "given"  # how surely
    evidence: str = ""  # what shows it: the name of the file or option, or what was seen in the bytes, with counts

    @property
    def bearing(self) -> str:
        """``read`` if an answer depends on it, else ``none`` or ``refused``."""
        return KNOWN[self.name].bearing

    @property
    def depends(self) -> str:
        """What depends on it."""
        return KNOWN[self.name].depends

    @property
    def give(self) -> str:
        """What to give if the value is wrong; of a truth value the other one."""
        give, other = KNOWN[self.name].give, not self.value
        return f"{give.partition('=')[0]}={_toml(other)}" if KNOWN[self.name].kind == "bool" else give

    @property
    def text(self) -> str:
        """The value as TOML writes it; a secret is hidden."""
        return HIDDEN if is_secret(self.name) else _toml(self.value)

    @property
    def _rank(self) -> int:
        return _RANK.get(self.source, _RANK.get((self.source, self.sure), 5))


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A setting that was given, and bytes that it cannot have made."""

    given: Setting  # as given
    shown: Setting | None = None  # the value that the bytes show; None of a list of rules, as many mean the same
    seen: str = ""  # of such a list: what the log has against it
    # Partition, offset and commit_ts of events that show it.
    places: tuple[tuple[int | None, int | None, int | None], ...] = ()
    cause: str = ""  # what stays the same while the log grows, where ``seen`` counts or lists

    @property
    def words(self) -> str:
        """One sentence."""
        g, s = self.given, self.shown
        who = f"The {g.source} ({g.evidence})" if g.evidence else f"The {g.source}"
        if g.evidence.startswith("file ") and ";" not in g.evidence:
            who = f"The {g.evidence}"
        if s is None:
            return f"{who} sets {g.name}, but {self.seen}."
        used = "the bytes count" if g.source == "file" and s.sure == "shown" else f"the {g.source} counts"
        as_shown = f"{s.name} = " if s.name != g.name else ""
        return f"{who} sets {g.name} = {g.text}, but the log shows {as_shown}{s.text}: {s.evidence}; {used}."

    @property
    def shows(self) -> list[dict[str, int | None]]:
        """:attr:`places` as the ``evidence`` of a finding (:data:`ticdc_lab.events.schema.EVIDENCE`)."""
        return [dict(zip(("partition", "offset", "commit_ts"), place, strict=True)) for place in self.places]


@dataclass(frozen=True, slots=True)
class Settings:
    """What is known of a changefeed's settings.

    Examples
    --------
    >>> s = Settings((Setting("sink.protocol", "csv", "file"),))
    >>> s.value("sink.protocol"), s.value("sink.csv.delimiter"), s.value("sink.csv.delimiter", default=",")
    ('csv', None, ',')
    """

    known: tuple[Setting, ...] = ()  # every setting from every place, so one may be there several times
    against: tuple[Contradiction, ...] = ()  # what the log has against lists of rules that were given
    # What of the given settings has another effect than it seems, or is not compared with the log; a sentence each.
    notes: tuple[str, ...] = ()
    _counting: dict[str, Setting] = field(init=False, repr=False, compare=False)  # by name: codecs ask for each file

    def __post_init__(self) -> None:
        """Of several values from several places one counts."""
        found: dict[str, Setting] = {}
        for s in self.known:
            if s.name not in found or s._rank < found[s.name]._rank:
                found[s.name] = s
        object.__setattr__(self, "_counting", found)

    def get(self, name: str) -> Setting | None:
        """The setting that counts: an option, else what the bytes show, else the file, else what is likely."""
        return self._counting.get(full_name(name))

    def value(self, name: str, default: Any = None) -> Any:
        """Its value, or ``default`` where nothing is known of it."""
        found = self.get(name)
        return default if found is None else found.value

    def given(self, name: str) -> Setting | None:
        """The setting as given; what only the bytes show is left out."""
        found = self.get(name)
        if found is None or found.source != "bytes":
            return found
        return Settings(tuple(s for s in self.known if s.source != "bytes")).get(name)

    def __contains__(self, name: object) -> bool:
        """Whether anything is known of it."""
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[Setting]:
        """The settings that count, in the order of :data:`~ticdc_lab.settings.keys.KNOWN`."""
        names = {s.name for s in self.known}
        return iter([found for name in KNOWN if name in names and (found := self.get(name)) is not None])

    def __len__(self) -> int:
        """How many different settings are known."""
        return len({s.name for s in self.known})

    def __or__(self, other: Settings | Iterable[Setting]) -> Settings:
        """Both; the same setting from the same place is the other's."""
        more = tuple(other.known if isinstance(other, Settings) else other)
        replaced = {(s.name, s.source) for s in more}
        against, notes = (other.against, other.notes) if isinstance(other, Settings) else ((), ())
        known = *[s for s in self.known if (s.name, s.source) not in replaced], *more
        return Settings(known, (*self.against, *against), tuple(dict.fromkeys((*self.notes, *notes))))

    def with_option(self, name: str, value: Value, *, evidence: str = "") -> Settings:
        """The same with a given value; it wins over file and bytes."""
        return self | [Setting(require_name(name), value, "option", "given", evidence or f"--option {name}")]

    def noted(self, against: Iterable[Contradiction] = (), notes: Iterable[str] = ()) -> Settings:
        """The same with what the log has against it, and with notes; each once."""
        more = list(self.against)
        for c in against:
            more += [] if c in more else [c]
        return replace(self, against=tuple(more), notes=tuple(dict.fromkeys((*self.notes, *notes))))

    @property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """What was given and the bytes show otherwise: values in the order of the keys, then rules."""
        found = []
        for name in (n for n in KNOWN if n not in NOT_COMPARED):
            mine = [s for s in self.known if s.name == name and s.source != "bytes"]
            shown = [s for s in self.known if s.source == "bytes" and s.sure in ("shown", "likely")]
            own = [b for b in shown if b.name == name]
            found += [Contradiction(g, b) for g in mine for b in own if g.value != b.value]
            if name == OLD_VALUES:  # without them no setting of a protocol puts any image before a change in
                put_in = [b for b in shown if b.name.endswith("old-value") and b.name != name and b.value is not False]
                found += [Contradiction(g, b) for g in mine for b in put_in[:1] if not own and g.value is False]
        return (*found, *self.against)

    @property
    def not_evaluated(self) -> tuple[str, ...]:
        """What of the changefeed's filters is not evaluated here, a sentence for each event filter; and the notes."""
        found = [*self.notes]
        for of_filter in self.value("filter.event-filters", ()):
            asked = [f"{k} = {_toml(of_filter[k])}" for k in NOT_EVALUATED if of_filter.get(k)]
            if asked:
                found.append(
                    f"The changefeed's event filter for {', '.join(of_filter.get('matcher', ())) or 'no table'} is not "
                    f"evaluated ({'; '.join(asked)}): which changes and DDL it leaves out is unknown."
                )
        return tuple(found)

    def rows(self) -> list[dict[str, str]]:
        """The table that people read: setting, value, how known, what depends on it, what to give if it is wrong."""
        return [
            {
                "setting": s.name, "value": s.text, "known from": s.source, "how surely": s.sure,
                "evidence": s.evidence, "what depends on it": s.depends, "if it is wrong": s.give,
            }
            for s in self
            if s.bearing == "read"
        ]  # fmt: skip


MATCH = "settings_match_the_log"
"""The guarantee that contradictions break: what was given is what the bytes show."""

UNKNOWN = Settings()
"""Nothing is known."""


def require_name(name: str) -> str:
    """The full name of a setting; a :class:`ContractError` that suggests the nearest where there is none."""
    found = full_name(name)
    if found not in KNOWN:
        from ticdc_lab.settings.keys import nearest

        near = nearest(name, KNOWN)
        raise ContractError(
            f"TiCDC has no setting {name!r}.", hint=f"The nearest is {near}." if near else "See docs/settings.md."
        )
    return found


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r").replace("\n", "\\n") + '"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return "none" if value is None else str(value)
