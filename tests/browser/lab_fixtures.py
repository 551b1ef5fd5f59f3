"""One JupyterLab and one browser for the tests of this folder; tests/conftest.py has them, as there can be one only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_lab import ROOT, jupyter_lab, workspace
from lab_page import LabPage, chromium


@pytest.fixture(scope="session")
def pictures() -> Path:
    """Where screenshots go: a folder that git ignores, or the one CI keeps."""
    folder = Path(os.environ.get("TICDC_LAB_PICTURES", ROOT / "out" / "browser"))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Iterator[LabPage]:
    """JupyterLab over copies of the notebooks, and of the ones of this folder."""
    root = workspace(tmp_path_factory.mktemp("root"))
    with jupyter_lab(root, tmp_path_factory.mktemp("home")) as address, chromium() as browser:
        yield LabPage(browser, address, pictures, root)
