"""Make docs/designs.md from docs/designs.yaml.

python docs/designs.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
HEAD = """# The designs, section by section

Each section of the designs: what the simulators model, where, what is left out and why, and the tests that fail
without it. This page is made from `docs/designs.yaml`; `tests/test_designs_page.py` checks that every file and test
exists.

Other pages and docstrings call these documents by short names. *MQ design* is "TiCDC MQ (Kafka) Protocol".
*Architecture model* is "Analyzing the Architecture Model". *Scheduling design* is "Distributed Scheduling in TiCDC".
*PD's design* is "TiDB Scheduling". *The proposal* is "Proposal: DDL as a Service". "TiCDC's design" is the one under
the sources of the page. Sections are named as in the documents, which are not in this repository.
"""


def page(designs: list[dict[str, Any]]) -> str:
    """Give the page's text."""
    parts = [HEAD]
    for design in designs:
        parts.append(
            f"\n## {design['design']}\n\n| section | what is modelled, where | left out | tests |\n|---|---|---|---|\n"
        )
        for one in design["sections"]:
            where = ", ".join(f"`{name}`" for name in one["where"])
            tests = "<br>".join(f"`{name}`" for name in one["tests"])
            parts.append(f"| {one['section']} | {one['modelled']} {where} | {one['left_out']} | {tests} |\n")
    return "".join(parts)


def read() -> list[dict[str, Any]]:
    """Give the sections of all designs."""
    found: list[dict[str, Any]] = yaml.safe_load((FOLDER / "designs.yaml").read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    (FOLDER / "designs.md").write_text(page(read()), encoding="utf-8")
