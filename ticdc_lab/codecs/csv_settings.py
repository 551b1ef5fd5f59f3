"""What a changefeed's configuration says about its storage files and the files do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from ticdc_lab.errors import SourceError

_SECTION = "csv."
_TRUTH = {"true": True, "false": False}
_CHOICES = {
    "csv.binary-encoding-method": ("auto", "base64", "hex"),
    "date-separator": ("auto", "none", "year", "month", "day"),
}
_ESCAPES = {"\\r": "\r", "\\n": "\n", "\\t": "\t", "\\u0001": "\x01"}


@dataclass(frozen=True, slots=True)
class StorageSettings:
    r"""Settings of the sink, with TiCDC's defaults; None is told from each file.

    Names are those of the changefeed's configuration, section ``sink``, with ``_`` for ``-`` and ``.``: ``csv_null`` is
    ``csv.null``.
    """

    csv_delimiter: str = ","
    csv_quote: str = '"'
    """Empty: texts are not quoted but escaped with a backslash."""
    csv_null: str = r"\N"
    csv_binary_encoding_method: str = "auto"
    """``auto``: hex if all binary values of a sample are hexadecimal digits, else TiCDC's default, base64."""
    csv_include_commit_ts: bool | None = None
    csv_output_old_value: bool | None = None
    csv_output_handle_key: bool | None = None
    csv_output_field_header: bool | None = None
    terminator: str | None = None
    """TiCDC's default is carriage return and line feed."""
    date_separator: str = "auto"

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if (given := getattr(self, _attribute(name))) not in choices:
                raise _wrong(name, given, "one of " + ", ".join(choices))
        if not self.csv_delimiter or self.terminator == "" or len(self.csv_quote.encode()) > 1:
            raise SourceError(
                "csv.delimiter and terminator cannot be empty, and csv.quote has at most one byte; found "
                f"{self.csv_delimiter!r}, {self.terminator!r}, {self.csv_quote!r}."
            )


def settings_from(pairs: Iterable[str]) -> StorageSettings:
    r"""Settings from ``name=value`` texts such as ``csv.delimiter=;``.

    ``\t``, ``\r``, ``\n`` and ``\u0001`` stand for themselves in delimiter and terminator.

    Raises
    ------
    SourceError
        A name is unknown or a value is none that it takes.
    """
    known = {_public(f.name): str(f.type) for f in fields(StorageSettings)}
    found: dict[str, str | bool] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or name not in known:
            raise _wrong("setting", pair, "name=value with a name of " + ", ".join(known))
        if "bool" in known[name]:
            if text not in _TRUTH:
                raise _wrong(name, text, "true or false")
            found[_attribute(name)] = _TRUTH[text]
        else:
            found[_attribute(name)] = _unescaped(text) if name in ("csv.delimiter", "terminator") else text
    return StorageSettings(**found)  # type: ignore[arg-type]


def settings_among(options: Mapping[str, str]) -> tuple[StorageSettings, dict[str, str]]:
    """Those options that are settings of storage files, and the others."""
    names = {_public(f.name) for f in fields(StorageSettings)}
    mine = [f"{name}={value}" for name, value in options.items() if name in names or name.startswith(_SECTION)]
    others = {name: v for name, v in options.items() if name not in names and not name.startswith(_SECTION)}
    return settings_from(mine), others


def _unescaped(text: str) -> str:
    for written, meant in _ESCAPES.items():
        text = text.replace(written, meant)
    return text


def _public(attribute: str) -> str:
    name = attribute.replace("_", "-")
    return _SECTION + name.removeprefix("csv-") if name.startswith("csv-") else name


def _attribute(name: str) -> str:
    return name.replace(".", "_").replace("-", "_")


def _wrong(name: str, found: object, expected: str) -> SourceError:
    return SourceError(
        f"Storage setting {name}: expected {expected}, found {found!r}.",
        hint="Settings are named as in the changefeed's configuration, section [sink] and [sink.csv].",
    )


DEFAULTS = StorageSettings()
"""TiCDC's own, and what is told from the files."""
