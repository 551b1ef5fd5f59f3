"""The notebooks and samples that come with the package: in a checkout beside it, in a wheel inside it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from ticdc_lab.errors import SetupError, SourceError

SAMPLE = "messages_canal-json-tidb_small.jsonl.gz"
"""The sample that a first report is made of."""

_PACKAGE = Path(__file__).resolve().parent.parent


def samples() -> Path:
    """Folder of the recorded topics and scenarios (``data`` of the repository).

    Returns: to read from only: an installed package may be in a read-only place. Raises SetupError: the package was
    installed without them.
    """
    return _folder("data")


def notebooks() -> Path:
    """Folder of the notebooks, to copy from; arguments and errors as of :func:`samples`."""
    return _folder("notebooks")


def workbench_notebook(source: str | None, target: Path) -> Path:
    """Write a notebook of one cell that opens the workbench, unless it is there already.

    Raises SourceError: another notebook lies there.
    """
    import nbformat

    where = "" if source is None else repr(str(Path(source).resolve()) if Path(source).exists() else source)
    call = f"ticdc_lab.workbench({where})"
    source_of_cell = f"# Shift+Enter opens the workbench\nimport ticdc_lab\n\n{call}"
    cell = nbformat.v4.new_code_cell(source_of_cell, id="workbench")  # type: ignore[no-untyped-call]
    book = nbformat.v4.new_notebook(cells=[cell])  # type: ignore[no-untyped-call]
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    if target.exists():
        there = target.read_text(encoding="utf-8")
        if call not in "".join("".join(c.get("source", "")) for c in json.loads(there).get("cells", ())):
            raise SourceError(f"{target} is another notebook.", hint=f"Name a new one: --out {target.stem}-2.ipynb")
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(str(nbformat.writes(book)) + "\n", encoding="utf-8")  # type: ignore[no-untyped-call]
    return target


def copy_out(folder: str | Path) -> Path:
    """Copy the notebooks and what they read to where they can be run and changed.

    ``folder``: gets ``notebooks`` and ``data``, beside each other as the notebooks expect them. Returns: the folder of
    the copied notebooks. Raises SetupError: one of both is there already (nothing is overwritten), or the package was
    installed without them.
    """
    parts = {name: _folder(name) for name in ("notebooks", "data")}
    for name in parts:
        if (Path(folder) / name).exists():
            raise SetupError(
                f"{Path(folder) / name} is there already, and may contain your work.",
                hint="Name another folder: ticdc-lab notebooks FOLDER, or move that one away.",
            )
    for name, path in parts.items():
        shutil.copytree(path, Path(folder) / name, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    return Path(folder) / "notebooks"


def _folder(name: str) -> Path:
    """In a wheel they are in folders of the package that begin with an underscore, as they hold no module."""
    for path in (_PACKAGE / f"_{name}", _PACKAGE.parent / name):
        if path.is_dir():
            return path
    raise SetupError(
        f"This ticdc_lab, in {_PACKAGE}, was installed without its {name}.",
        hint="Install its wheel (`pip install`), or work in a checkout of the repository.",
    )
