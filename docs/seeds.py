"""Make docs/seeds.md of docs/seeds.yaml.

python docs/seeds.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
HEAD = """# The designs, section by section

What the simulators model of each section of the designs they follow, where, what is left out and why, and the tests
that break without it. This page is made of `docs/seeds.yaml`; `tests/test_seeds_page.py` holds that every file and
test in it is there.
"""


def page(seeds: list[dict[str, Any]]) -> str:
    """Give the page's text."""
    parts = [HEAD]
    for seed in seeds:
        parts.append(
            f"\n## {seed['seed']}\n\n| section | what is modelled, where | left out | tests |\n|---|---|---|---|\n"
        )
        for one in seed["sections"]:
            where = ", ".join(f"`{name}`" for name in one["where"])
            tests = "<br>".join(f"`{name}`" for name in one["tests"])
            parts.append(f"| {one['section']} | {one['modelled']} {where} | {one['left_out']} | {tests} |\n")
    return "".join(parts)


def read() -> list[dict[str, Any]]:
    """Give the sections of all seeds."""
    found: list[dict[str, Any]] = yaml.safe_load((FOLDER / "seeds.yaml").read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    (FOLDER / "seeds.md").write_text(page(read()), encoding="utf-8")
