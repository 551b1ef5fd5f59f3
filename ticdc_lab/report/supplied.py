"""The notebooks and samples that come with the package: in a checkout beside it, in a wheel inside it."""

from __future__ import annotations

import shutil
from pathlib import Path

from ticdc_lab.errors import SetupError

SAMPLE = "messages_canal-json-tidb_small.jsonl.gz"
"""The sample that a first report is made of."""

_PACKAGE = Path(__file__).resolve().parent.parent


def samples() -> Path:
    """Folder of the recorded topics and scenarios (``data`` of the repository).

    Returns
    -------
    Path
        To read from only: an installed package may lie where nobody can write.

    Raises
    ------
    SetupError
        The package was installed without them.
    """
    return _folder("data")


def notebooks() -> Path:
    """Folder of the notebooks, to copy from; arguments and errors as of :func:`samples`."""
    return _folder("notebooks")


def copy_out(folder: str | Path) -> Path:
    """Copy the notebooks and what they read to where they can be run and changed.

    Parameters
    ----------
    folder
        Gets ``notebooks`` and ``data``, beside each other as the notebooks expect them.

    Returns
    -------
    Path
        The folder of the copied notebooks.

    Raises
    ------
    SetupError
        One of both is there already (nothing is overwritten), or the package was installed without them.
    """
    parts = {name: _folder(name) for name in ("notebooks", "data")}
    for name in parts:
        if (Path(folder) / name).exists():
            raise SetupError(
                f"{Path(folder) / name} is there already, and may hold work of yours.",
                hint="Name another folder, or move that one away.",
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
        hint="Install its wheel, or work in a checkout of the repository.",
    )
