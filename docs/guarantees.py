"""Write what is made of the guarantees: the table of docs/audit.md, and the README's first answer.

python docs/guarantees.py
"""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from ticdc_lab.audit import GUARANTEES
from ticdc_lab.cli import main

ROOT = Path(__file__).parent.parent
_TABLE = re.compile(r"(?<=\| guarantee \| in words \|\n\|---\|---\|\n)(?:\|.*\n)*")
_ANSWER = re.compile(r"(```sh\n.*?\nticdc-lab (audit data/\S+)\n```\n\n```text\n)(.*?)(?=```)", re.DOTALL)


def page(text: str) -> str:
    """Give docs/audit.md with a line for each guarantee: its name, and the first paragraph of its docstring."""
    said = {name: (g.row or g.image or g.log).__doc__.partition("\n\n")[0] for name, g in GUARANTEES.items()}
    return _TABLE.sub("".join(f"| `{name}` | {' '.join(words.split())} |\n" for name, words in said.items()), text)


def readme(text: str) -> str:
    """Give the README with as many lines of its first answer as it shows."""

    def answered(shown: re.Match[str]) -> str:
        printed = CliRunner().invoke(main, shown[2].split()).stdout.splitlines(keepends=True)
        return shown[1] + "".join(printed[: shown[3].count("\n")])

    return _ANSWER.sub(answered, text)


if __name__ == "__main__":
    for name, made in {"docs/audit.md": page, "README.md": readme}.items():
        (ROOT / name).write_text(made((ROOT / name).read_text(encoding="utf-8")), encoding="utf-8")
