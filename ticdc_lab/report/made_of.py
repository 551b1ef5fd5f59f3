"""The last section of every page: what it was made from."""

from __future__ import annotations

from ticdc_lab.figures.figure import Figure
from ticdc_lab.report.page import Section, Table
from ticdc_lab.sources.provenance import Provenance

_CODE = ("fingerprint", "setting", "value", "version")


def made_of(made_from: Provenance) -> Section:
    """Settings, versions and fingerprints of the inputs, as a section."""
    body: list[Table | Figure | str] = []
    for title, frame in made_from.frames().items():
        rows = [tuple(None if v != v else v for v in row) for row in frame.itertuples(index=False)]
        body += [title, Table(list(frame.columns), rows, code=_CODE)]
    answer = "With the same inputs and versions it comes out the same."
    return Section("made-of", "What this was made from", answer, (), body)
