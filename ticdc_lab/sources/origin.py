"""How a log was loaded, as JSON that a state keeps: to load it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from ticdc_lab.errors import SourceError
from ticdc_lab.errors.redaction import is_secret, without_secrets
from ticdc_lab.errors.whole_files import local_path
from ticdc_lab.events.sample import Sample
from ticdc_lab.settings import UNKNOWN, Setting, Settings
from ticdc_lab.settings.file import of_earlier

_PATHS = ("source", "schema_registry", "claim_check")


@dataclass(frozen=True, slots=True)
class Origin:
    """What :func:`ticdc_lab.sources.load.load` was called with, and the sample that was taken.

    Attributes
    ----------
    source, protocol, source_kind, schema_registry, claim_check, settings, options, changefeed
        Its arguments.
    sample
        Which row changes are looked at; None for all.
    """

    source: str
    protocol: str = "auto"
    source_kind: str = "auto"
    schema_registry: str | None = None
    claim_check: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    changefeed: Settings = UNKNOWN
    sample: Sample | None = None

    def as_dict(self) -> dict[str, Any]:
        """Give it as JSON: local paths absolute; of secrets only the names (``left_out``), of URLs no user or query."""
        paths = {name: _absolute(getattr(self, name)) for name in _PATHS}
        if self.source_kind == "table":
            paths["source"] = self.source
        bare = {name: without_secrets(at) if at is not None and "://" in at else at for name, at in paths.items()}
        return {
            "source": bare["source"],
            "protocol": self.protocol,
            "source_kind": self.source_kind,
            "schema_registry": bare["schema_registry"],
            "claim_check": bare["claim_check"],
            "changefeed": [asdict(s) for s in self.changefeed.known],
            "options": {name: value for name, value in self.options.items() if not is_secret(name)},
            "left_out": sorted(
                [name for name in self.options if is_secret(name)] + [n for n in _PATHS if bare[n] != paths[n]]
            ),
            "sample": None if self.sample is None else asdict(self.sample),
        }

    @classmethod
    def from_dict(cls, told: Mapping[str, Any], *, options: Mapping[str, str] | None = None) -> Origin:
        """Read what :meth:`as_dict` gave.

        Parameters
        ----------
        told
            Other names in it are left alone.
        options
            Settings of the source that replace or add to those that were written down: the secrets.

        Raises
        ------
        SourceError
            A secret that was left out is not among ``options``, or something in it is not as it should be.
        """
        given = dict(options or {})
        if not isinstance(told.get("source"), str) or not isinstance(told.get("left_out", []), list):
            raise SourceError("made_from describes no loaded log: `source` is a text, `left_out` a list.")
        lacked = told.get("left_out", ())
        lacking = [name for name in lacked if name not in given]
        if lacking:
            raise SourceError(
                f"{told['source']} was read with {', '.join(lacking)}, which no state keeps.",
                hint="Add it to the command: --kafka-config FILE or --option NAME=VALUE; in Python options={...}.",
            )
        try:
            places = {name: given.pop(name) for name in _PATHS if name in lacked and name in given}
            found = cls(**{f.name: told[f.name] for f in fields(cls) if f.name in told} | places)
            sample = None if found.sample is None else Sample.from_dict(dict(told["sample"]))
            changefeed = of_earlier(told.get("settings", {})) | [Setting(**s) for s in told.get("changefeed", ())]
            more = {**found.options, **given}
            return replace(found, sample=sample, changefeed=changefeed, options=more)
        except (TypeError, ValueError, AttributeError) as error:
            raise SourceError(f"made_from does not describe how a log was loaded: {error}.") from error

    def of(self, source: str) -> Origin:
        """The same of another source: the file has another place here, or another log is looked at the same way."""
        return replace(self, source=source)


def _absolute(place: str | None) -> str | None:
    local = None if place is None else local_path(place)
    return place if local is None else str(local.expanduser().resolve())
