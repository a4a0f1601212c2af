"""Imports of the user's own code, and of packages that are optional."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["import_own", "require"]


def import_own(module: str) -> ModuleType:
    """Imports a module by name, or a .py file by path.

    >>> import_own("dab.parts.named_tensors").__name__
    'dab.parts.named_tensors'
    """
    try:
        return _file(module) if module.endswith(".py") else importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"cannot import {module}: {error}") from error


def require(module: str, extra: str) -> Any:
    """Imports an optional package; the error names the extra that installs it.

    >>> require("no_such_package", extra="ray")
    Traceback (most recent call last):
    ImportError: No module named 'no_such_package': pip install 'dab-tta[ray]'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{error}: pip install 'dab-tta[{extra}]'", name=module) from error


def _file(file: str) -> ModuleType:
    # Named by its path, so a file called dab.py does not replace the package.
    spec = importlib.util.spec_from_file_location(file, file)
    if spec is None or spec.loader is None or not Path(file).exists():
        raise ValueError(f"cannot import {file}: no such file")
    sys.modules[file] = loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
