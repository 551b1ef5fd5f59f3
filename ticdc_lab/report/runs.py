"""Which logs a set of reports is about, and how each is read: from names, or from a file of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from ticdc_lab.errors import SourceError
from ticdc_lab.errors.bounded import BoundedLoader, parse_toml, read_bounded
from ticdc_lab.errors.redaction import without_secrets
from ticdc_lab.errors.whole_files import bare_path, local_path, scheme_of
from ticdc_lab.words import first_line

_FORM = "a list `runs`, each with at least a `source`"


@dataclass(frozen=True, slots=True)
class ListedLog:
    """One log of a set: what :func:`ticdc_lab.sources.load.load` takes, and a title for its page."""

    source: str
    title: str = ""
    protocol: str = "auto"
    source_kind: str = "auto"
    schema_registry: str | None = None
    claim_check: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """What the page is called."""
        return self.title or name_of(self.source)

    def settings(self) -> dict[str, object]:
        """Those that were given, by name."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in given.items() if value and (name, value) != ("source_kind", "auto")}


def name_of(source: str) -> str:
    """What a source is called: the last part of its place, without what may be secret in it."""
    place = local_path(source)
    return Path(without_secrets(source)).name if place is None else place.name or place.resolve().name or source


def read_runs(path: str | Path) -> list[ListedLog]:
    """Runs from a YAML or TOML file.

    Parameters
    ----------
    path
        A list ``runs``; each has ``source`` and may have ``title``, ``protocol``, ``source_kind``,
        ``schema_registry``, ``claim_check`` and ``options``. Paths are relative to the file.

    Raises
    ------
    SourceError
        The file cannot be read, or a run has a name that is none of these.
    """
    file = Path(path)
    try:
        text = read_bounded(file)
        said = parse_toml(text) if file.suffix == ".toml" else yaml.load(text, Loader=BoundedLoader)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SourceError(f"The runs {file} cannot be read: {first_line(error)}") from error
    runs = said.get("runs") if isinstance(said, dict) else None
    if not isinstance(runs, list) or not runs:
        raise SourceError(f"{file} has no runs; expected {_FORM}.")
    return [_run(run, n, file) for n, run in enumerate(runs, 1)]


def _run(said: Any, n: int, file: Path) -> ListedLog:
    known = [f.name for f in fields(ListedLog)]
    if not isinstance(said, dict) or not isinstance(said.get("source"), str):
        raise SourceError(f"{file}: run {n} has no source; expected {_FORM}.")
    if strange := sorted(set(said) - set(known)):
        raise SourceError(f"{file}: run {n} has {', '.join(strange)}; expected some of {', '.join(known)}.")
    options = said.get("options") or {}
    if not isinstance(options, dict):
        raise SourceError(f"{file}: the options of run {n} are no list of names with values.")
    paths = {k: _beside(file, str(said[k])) for k in ("source", "schema_registry", "claim_check") if said.get(k)}
    words = {k: str(said[k]) for k in ("title", "protocol", "source_kind") if said.get(k)}
    if words.get("source_kind") == "table":
        paths["source"] = said["source"]
    as_written = {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in options.items()}
    return ListedLog(**paths, **words, options=as_written)


def _beside(file: Path, place: str) -> str:
    # a path that is absolute stays as it is
    return place if scheme_of(place) is not None else str(file.parent / bare_path(place))


def page_names(runs: Sequence[ListedLog]) -> list[str]:
    """A file name for each page: from the title, each once, also where upper and lower case are the same file."""
    taken: set[str] = {"index"}
    names = []
    for run in runs:
        stem = _stem(run.name)
        name = next(n for n in _numbered(stem) if n.casefold() not in taken)
        taken.add(name.casefold())
        names.append(f"{name}.html")
    return names


def _numbered(stem: str) -> Iterable[str]:
    yield stem
    n = 1
    while n := n + 1:
        yield f"{stem}-{n}"


def _stem(name: str) -> str:
    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.")
    for ending in (".gz", ".jsonl", ".json", ".ndjson", ".parquet"):
        plain = plain.removesuffix(ending)
    return plain[:80] or "log"
