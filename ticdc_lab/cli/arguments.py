"""Errors in the arguments of a command, reported before an engine starts or a library is imported.

Names and sizes of files are looked at; nothing is read but small files that an option names.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ticdc_lab.engine.choosing import choose
from ticdc_lab.errors import SourceError, missing_folder
from ticdc_lab.errors.whole_files import local_path
from ticdc_lab.sources.forms import OPTIONS
from ticdc_lab.sources.places import LINES, is_kafka, mistyped, require_kind, require_source, unknown_options

TARGETS = ("duckdb:///", "delta:", "mysql://")
"""How targets of a replay that ``compare`` takes begin."""


def check_reading(where: Mapping[str, Any]) -> None:
    """Raise an error of this package if an option for reading a source cannot be right."""
    from ticdc_lab.codecs.registry import require_protocol

    if where.get("protocol", "auto") != "auto":
        require_protocol(where["protocol"])
    require_kind(where.get("source_kind") or "auto")
    folder, schemas = where.get("claim_check"), where.get("schema_registry")
    if folder and (place := local_path(folder)) is not None and not place.is_dir():
        raise SourceError(
            f"The claim-check folder {folder} does not exist.",
            hint="Name the folder of the changefeed's claim-check storage: --claim-check FOLDER",
        )
    if schemas and (place := local_path(schemas)) is not None and not place.is_file():
        raise SourceError(
            f"The schemas of {schemas} cannot be read: there is no such file.",
            hint="Expected a file of JSON Lines such as data/avro_schemas_small.jsonl.gz, or a URL.",
        )


def check_source(
    source: str, where: Mapping[str, Any], *, engine: str | None = None, is_read: bool = True
) -> str | None:
    """Raise an error of this package if nothing can be read at ``source``, or not with these options.

    With an engine that is asked for, or ``auto``, a broker is asked before any begins; why its topic is too large for
    the embedded engine is given back, if all of it ``is_read``.
    """
    from ticdc_lab.settings.file import options_of_source

    if source.startswith(TARGETS):
        raise SourceError(f"{source} is a target, no log.", hint="ticdc-lab compare takes two of them.")
    kind = where.get("source_kind") or "auto"
    others = options_of_source(where.get("options", {}))
    require_source(source, kind, others)
    if kind == "kafka" or (kind == "auto" and is_kafka(source)):
        from ticdc_lab.sources.kafka import require_reachable, topics_of

        topics = topics_of(source, others)
        if engine is not None:
            require_reachable(topics)
        if engine in ("embedded", "auto") and is_read and (engine, choose(source).engine) != ("auto", "spark"):
            from ticdc_lab.sources.kafka_reading import too_large

            return too_large(source, where.get("options", {}))
    elif unknown := others.keys() - OPTIONS.keys():
        raise unknown_options(source, unknown)
    return None


def check_outs(source: str | None, *outs: str | None, page: bool = False) -> None:
    """Raise :class:`SourceError` if one of ``outs`` would replace the source or cannot be written (a page: a file)."""
    from ticdc_lab.encode.export import require_apart

    if source is not None:
        require_apart(source, *outs)
    for out in outs:
        if out:
            _check_out(out, page=page)


def _check_out(out: str, *, page: bool) -> None:
    place = local_path(out)
    if place is None:
        return
    above = next(p for p in place.parents if p.exists())
    if not above.is_dir():
        raise SourceError(f"Cannot write {out}: {above} is a file, no folder.", hint="Name another place with --out.")
    if above != place.parent:
        raise missing_folder(out)
    if not os.access(place if place.exists() else above, os.W_OK):
        raise SourceError(
            f"Cannot write {out}: this user may not write there, or the device is read-only.",
            hint=f"Look who may write there: ls -ld {shlex.quote(str(above))}",
        )
    if (page or out.endswith((*LINES, ".gz"))) and place.is_dir():
        raise SourceError(f"Cannot write {out}: it is a folder.", hint="Name a file in it, as FOLDER/FILE.")


def existing_file(path: str | Path, what: str) -> None:
    """Raise :class:`SourceError` unless a file that an option names is there."""
    if not Path(path).is_file():
        hint = f"{mistyped(Path(path))}List the folder: ls {shlex.quote(str(Path(path).parent))}"
        raise SourceError(f"{what} {path} does not exist.", hint=hint)
