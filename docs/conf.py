"""How the documentation is built: `./lab docs`, offline, warnings are errors."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "docs/extensions"), str(ROOT)]

project = "ticdc_lab"
author = "the authors of ticdc_lab"
release = version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
language = "en"

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "mathml",
    "references",
]
exclude_patterns = ["extensions"]
root_doc = "index"

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "furo"
html_title = "ticdc_lab"
html_show_sphinx = html_show_copyright = False
html_copy_source = False
