"""What a newcomer sees of the package: about thirty names, documented, and nothing imported before it is used."""

from __future__ import annotations

import ast
import inspect
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
from pyspark import cloudpickle

import ticdc_lab
from ticdc_lab.lazily import LazyPackage

PACKAGE = Path(ticdc_lab.__file__).parent
LAZY = sorted(
    ".".join(path.parent.relative_to(PACKAGE.parent).parts)
    for path in PACKAGE.rglob("__init__.py")
    if "lazily(" in path.read_text(encoding="utf-8")
)
HEAVY = ("numpy", "pandas", "pyarrow", "pyspark", "numba", "duckdb", "plotly", "ipywidgets", "yaml", "requests", "grpc")


def imported(code: str) -> set[str]:
    """The modules that a new Python has imported after ``code``."""
    say = "\nimport json, sys\nsys.stdout.write('\\n' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code + say], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def heavy(modules: set[str]) -> set[str]:
    """Those that take long to import."""
    return modules & set(HEAVY)


def for_types(package: str) -> dict[str, str]:
    """What a package imports for type checkers alone: name to module."""
    tree = ast.parse(Path(str(import_module(package).__file__)).read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {name.asname or name.name: str(node.module) for node in imports for name in node.names}


def test_a_newcomer_can_hold_the_names() -> None:
    """About thirty, and all of them in ``dir``."""
    assert 25 <= len(ticdc_lab.__all__) <= 37
    assert set(ticdc_lab.__all__) <= set(dir(ticdc_lab))


@pytest.mark.parametrize("name", ticdc_lab.__all__)
def test_every_name_is_there_and_documented(name: str) -> None:
    """Each begins with one sentence; functions show what they take and give."""
    told = inspect.getdoc(getattr(ticdc_lab, name)) or ""
    first = " ".join(told.split("\n\n")[0].split())
    assert first.endswith((".", "?")) and len(first) < 200, first
    if inspect.isfunction(getattr(ticdc_lab, name)):
        takes = inspect.signature(getattr(ticdc_lab, name))
        assert "Parameters\n----------" in told or not takes.parameters
        gives = takes.return_annotation
        assert gives.startswith(("None", "Iterator")) or "Returns\n-------" in told


def test_it_works_from_a_zip(tmp_path: Path) -> None:
    """As Spark sends a package to workers that do not have it: names are found without files."""
    archive = shutil.make_archive(str(tmp_path / "sent"), "zip", PACKAGE.parent, "ticdc_lab")
    code = (
        "from ticdc_lab import __file__, audit, load; assert '.zip' in __file__; print(audit.__name__, load.__name__)"
    )
    environment = os.environ | {"PYTHONPATH": archive}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["audit", "load"], done.stderr


@pytest.mark.parametrize("package", LAZY)
def test_what_type_checkers_see_is_what_is_there(package: str) -> None:
    """``__all__`` and the imports under TYPE_CHECKING are the same names, and those mean the same objects."""
    module, typed = import_module(package), for_types(package)
    assert isinstance(module, LazyPackage)
    assert sorted(module.__all__) == sorted(typed)
    for name, where in typed.items():
        expected = getattr(import_module(where), name, None) or import_module(f"{where}.{name}")
        assert getattr(module, name) is expected, name


def test_importing_the_package_imports_nothing_else() -> None:
    """A script, a worker or a notebook pays for what it uses."""
    modules = imported("import ticdc_lab")
    assert heavy(modules) == set()
    assert {name for name in modules if name.startswith("ticdc_lab")} == {"ticdc_lab", "ticdc_lab.lazily"}


def test_asking_for_help_imports_no_machinery() -> None:
    """All commands with their one line each, without Spark and its kin."""
    modules = imported(
        "from click.testing import CliRunner\nfrom ticdc_lab.cli import main\n"
        "said = CliRunner().invoke(main, ['--help'])\nassert said.exit_code == 0 and 'watermarks' in said.output"
    )
    assert heavy(modules) == set()


def test_a_figure_imports_its_own_simulator_alone() -> None:
    """The curve of a log's lag needs pandas, not plotly, and nothing that simulates."""
    modules = imported("from ticdc_lab import figures\nfigures.lag, figures.partition_load")
    assert heavy(modules) == {"numpy", "pandas", "pyarrow"}  # pandas brings the last
    assert not {name for name in modules if name.startswith("ticdc_lab.simulate")}


def test_a_panel_imports_its_own_simulator_alone() -> None:
    """A panel of a log brings no world that is simulated."""
    modules = imported("from ticdc_lab.widgets import log_panel")
    assert not {name for name in modules if re.match(r"ticdc_lab\.simulate\.|ticdc_lab\.widgets\.p(d|ipeline)_", name)}


def test_a_function_is_not_hidden_by_the_module_it_is_in() -> None:
    """If a program imports ``ticdc_lab.audit`` or ``ticdc_lab.transactions`` first, the public names stay functions."""
    imported(
        "import ticdc_lab.audit.run, ticdc_lab.transactions, ticdc_lab.lake.ingest, ticdc_lab.dispatch.dispatching\n"
        "assert all(callable(getattr(ticdc_lab, name)) for name in ('audit', 'transactions', 'ingest', 'dispatch'))\n"
        "from ticdc_lab.audit import GUARANTEES"
    )
    assert pickle.loads(pickle.dumps(ticdc_lab.audit)) is ticdc_lab.audit


def test_functions_that_name_the_package_reach_the_workers() -> None:
    """Spark sends a function of ``__main__`` with the modules it names; pickle knows Python's own."""
    for package in LAZY:
        assert cloudpickle.loads(cloudpickle.dumps(import_module(package))) is import_module(package)


def test_a_name_that_is_not_there() -> None:
    """It is an AttributeError, as of every module, and ``hasattr`` works."""
    with pytest.raises(AttributeError, match="'ticdc_lab' has no attribute 'lod'"):
        ticdc_lab.lod  # noqa: B018
    assert not hasattr(ticdc_lab, "lod")
    assert isinstance(ticdc_lab.figures, ModuleType)


def missing_names(source: str) -> list[str]:
    """What a script imports of the package that is not there."""
    wanted = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom)]
    ours = [n for n in wanted if str(n.module).split(".")[0] == "ticdc_lab"]
    return [f"{n.module}.{a.name}" for n in ours for a in n.names if not _is_there(str(n.module), a.name)]


def _is_there(module: str, name: str) -> bool:
    try:
        found = import_module(module)
    except ModuleNotFoundError:
        return False
    return hasattr(found, name) or bool(hasattr(found, "__path__") and find_spec(f"{module}.{name}"))


def test_benchmarks_import_what_is_there() -> None:
    """No other test runs them: a name that has moved was found by who measured next."""
    scripts = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))
    assert {p.name: lost for p in scripts if (lost := missing_names(p.read_text(encoding="utf-8")))} == {}
    assert missing_names("from ticdc_lab.codecs.kernel.state import SCHEMA_NAME, State") == [
        "ticdc_lab.codecs.kernel.state.SCHEMA_NAME"
    ]
    assert missing_names("from ticdc_lab.gone import name") == ["ticdc_lab.gone.name"]
