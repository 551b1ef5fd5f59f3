"""Packages that import a public name on first use (PEP 562), so that importing them costs nothing.

Python binds every submodule to a name of its package on its import, and many of ours are named as the
one function in them: ``import ticdc_lab.audit`` would hide the function ``ticdc_lab.audit``. Here the public name wins;
``from ticdc_lab.audit import guarantees`` finds the submodule as ever. ``import ticdc_lab.audit.guarantees as g`` finds
none: there Python asks the function for the name.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import Any


class LazyPackage(ModuleType):
    """A package whose public names are in submodules that are not imported yet."""

    _names: frozenset[str]

    def __getattr__(self, name: str) -> Any:
        if name not in self.__dict__.get("_names", ()):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if "_where" not in self.__dict__:
            self.__dict__["_where"] = for_types(_source_of(self))
        module, called = self.__dict__["_where"][name]
        is_submodule = module == self.__name__
        value = import_module(f"{module}.{called}") if is_submodule else getattr(import_module(module), called)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in self._names):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """As the module that it is: a function sent to Spark's workers may name it."""
        return import_module, (self.__name__,)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self._names} - {"_names", "_where"})


def lazily(package: str, names: Iterable[str]) -> None:
    """Make ``package`` import its public names when they are first asked for.

    ``package``: ``__name__`` of a package, in whose ``__init__`` this is called. ``names``: public names, which it
    imports under ``if TYPE_CHECKING``: which shows where each is.
    """
    module = sys.modules[package]
    module.__dict__["_names"] = frozenset(names)
    module.__class__ = LazyPackage


def _source_of(module: ModuleType) -> str:
    """As its loader knows it: the package may lie in a zip, as Spark sends it to workers."""
    loader: Any = module.__loader__
    return str(loader.get_source(module.__name__))


def for_types(source: str) -> dict[str, tuple[str, str]]:
    """What a module imports for type checkers alone: by name the module, and what it is called there."""
    tree = ast.parse(source)
    blocks = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    imports = [n for block in blocks for n in block.body if isinstance(n, ast.ImportFrom)]
    return {name.asname or name.name: (str(n.module), name.name) for n in imports for name in n.names}
