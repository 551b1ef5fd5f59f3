"""Notebooks run with parameters of the caller's, and kept as pages."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import nbformat
import yaml
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbconvert import HTMLExporter
from traitlets.config import Config

from ticdc_lab.errors import SourceError
from ticdc_lab.errors.bounded import BoundedLoader
from ticdc_lab.errors.whole_files import local_path, write_whole
from ticdc_lab.report import supplied
from ticdc_lab.report.notebook_page import INJECTED, PARAMETERS, offline, parameters
from ticdc_lab.words import first_line

CELL_S = 1800
"""Seconds that a cell may take."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A notebook's page, and which of its sentences did not hold."""

    page: Path
    # Source of each cell whose ``assert`` failed: the notebook's claim about its sample is not true of this input.
    failed_checks: tuple[str, ...]


def notebook_page(
    name: str | Path,
    out: str | Path,
    given: Mapping[str, object] = MappingProxyType({}),
    *,
    begins: Callable[[int, int], None] = lambda cell, of: None,
) -> Exported:
    """Run a notebook in a fresh kernel and write its page, which needs no network.

    ``name``: a file, or the name of one of the notebooks that come with the package: ``05_consumer_consistency``,
    ``05``. ``out``: the HTML file; its folder is made. ``given``: parameters to replace, by name; a path is taken from
    the caller's folder where it is there. ``begins``: called before each cell with its number and how many there are.
    Returns: the page. A failed ``assert`` shows in it and does not stop the run; any other error does. Raises
    SourceError: there is no such notebook or parameter, or a cell failed.
    """
    file = find(name)
    try:
        read = nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call]
    except (ValueError, RecursionError, nbformat.ValidationError) as error:
        deep = isinstance(error, RecursionError)
        said = "it is nested too deep" if deep else first_line(error)[:200]
        raise SourceError(
            f"{file} is no notebook: {said}", hint="Name a notebook, `*.ipynb`: ticdc-lab notebook FILE"
        ) from None
    notebook = with_parameters(read, given, name=file.stem)
    where = {"metadata": {"path": str(file.parent), "name": file.stem}}
    run = NotebookClient(notebook, timeout=CELL_S, resources=where, allow_error_names=["AssertionError"])
    run.on_cell_start = lambda cell, cell_index: begins(cell_index + 1, len(notebook.cells))
    try:
        run.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise SourceError(f"{file.stem} stopped: {_why(error)}", hint=_where(notebook)) from error
    failed = tuple(c.source for c in notebook.cells if c.cell_type == "code" and any(map(_is_error, c.outputs)))
    page, _ = HTMLExporter(config=offline(Config())).from_notebook_node(notebook, resources=where)  # type: ignore[no-untyped-call]
    target = Path(out)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, page)
    return Exported(target, failed)


def find(name: str | Path) -> Path:
    """A notebook by its path, or one of the package's by its name or number."""
    if Path(name).is_file():
        return Path(name).resolve()
    folder = supplied.notebooks()
    stem = str(name).removesuffix(".ipynb")
    files = sorted(folder.glob("*.ipynb"))
    found = [f for f in files if f.stem == stem] or [f for f in files if f.stem.startswith(f"{stem}_")]
    if not found:
        raise SourceError(f"There is no notebook {name}.", hint=f"Name a file, or one of: {_listed(files)}.")
    return found[0]


def with_parameters(notebook: Any, given: Mapping[str, object], *, name: str) -> Any:
    """The notebook with a cell after its parameters that replaces some of them.

    Raises SourceError: a name is none of its parameters, or a value of another type.
    """
    known = parameters(notebook)
    if strange := sorted(set(given) - set(known)):
        raise SourceError(
            f"{name} has no parameter {', '.join(strange)}.", hint=f"Its parameters: {', '.join(known) or 'none'}."
        )
    values = {k: _typed(k, v, known[k], name) for k, v in given.items()}
    if values:
        at = next(i for i, c in enumerate(notebook.cells) if PARAMETERS in c.metadata.get("tags", []))
        cell = nbformat.v4.new_code_cell("\n".join(f"{k} = {v!r}" for k, v in values.items()))  # type: ignore[no-untyped-call]
        cell.metadata["tags"] = [INJECTED]
        notebook.cells.insert(at + 1, cell)
    return notebook


def _typed(key: str, value: object, default: object, name: str) -> object:
    """The value as the notebook wants it: text that names a path as a whole one, other text read as YAML."""
    if isinstance(default, str):
        text = str(value)
        try:
            place = local_path(text) if text else None
        except SourceError:  # too long for a name of a file: it is other text
            place = None
        return str(place.resolve()) if place is not None and os.path.exists(place) else text
    try:
        read = yaml.load(value, Loader=BoundedLoader) if isinstance(value, str) else value
    except (yaml.YAMLError, ValueError):
        raise SourceError(f"{name}: {key}={value:.60} cannot be read as YAML.") from None
    if isinstance(default, float) and isinstance(read, int):
        return float(read)
    if isinstance(default, tuple) and isinstance(read, list):
        return tuple(read)
    if default is not None and type(read) is not type(default):
        raise SourceError(
            f"{name} has {key} = {default!r}; expected another {type(default).__name__}, found {value!r}."
        )
    return read


def _is_error(output: Any) -> bool:
    return bool(output.output_type == "error")


def _why(error: Exception) -> str:
    if isinstance(error, CellExecutionError):
        return f"{error.ename}: {error.evalue}".splitlines()[0]
    return f"a cell took longer than {CELL_S} s" if isinstance(error, CellTimeoutError) else "its kernel died"


def _where(notebook: Any) -> str:
    for cell in notebook.cells:
        if cell.cell_type == "code" and any(map(_is_error, cell.outputs)):
            lines = cell.source.strip().splitlines()
            return f"The cell that begins with `{lines[0][:100]}` failed."
    return "Open it in JupyterLab and run it cell by cell."


def _listed(files: list[Path]) -> str:
    return ", ".join(f.stem for f in files)
