"""Packages that import a public name when somebody first asks for it (PEP 562), so that importing them costs nothing.

Python binds every submodule to a name of its package as soon as anybody imports it, and many of ours are named as the
one function in them: ``import ticdc_lab.audit`` would hide the function ``ticdc_lab.audit``. Here the public name wins;
``from ticdc_lab.audit import GUARANTEES`` finds the submodule as ever.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


class LazyPackage(ModuleType):
    """A package whose public names are in submodules that are not imported yet."""

    _where: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        module = self.__dict__.get("_where", {}).get(name)
        if module is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found = import_module(f"{self.__name__}.{module}")
        self.__dict__[name] = value = found if module == name and not hasattr(found, name) else getattr(found, name)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in self._where):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """As the module that it is: a function sent to Spark's workers may name it."""
        return import_module, (self.__name__,)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self._where} - {"_where"})


def lazily(package: str, names: Iterable[str], elsewhere: Mapping[str, str] | None = None) -> None:
    """Make ``package`` import its public names when they are first asked for.

    Parameters
    ----------
    package
        ``__name__`` of a package, in whose ``__init__`` this is called.
    names
        Public names. Each is the submodule of that name, or what is called so in it.
    elsewhere
        Names that are in submodules of another name: name to submodule, dotted from the package.
    """
    module = sys.modules[package]
    module.__dict__["_where"] = {name: (elsewhere or {}).get(name, name) for name in names}
    module.__class__ = LazyPackage
