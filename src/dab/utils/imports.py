"""Imports the user's own code by module name or file path."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

__all__ = ["import_own"]


def import_own(module: str) -> ModuleType:
    """Imports a module by name, or a .py file by path.

    >>> import_own("dab.parts.named_tensors").__name__
    'dab.parts.named_tensors'
    """
    try:
        return _file(module) if module.endswith(".py") else importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"cannot import {module}: {error}") from error


def _file(file: str) -> ModuleType:
    # Named by its path, so a file called dab.py does not replace the package.
    spec = importlib.util.spec_from_file_location(file, file)
    if spec is None or spec.loader is None or not Path(file).exists():
        raise ValueError(f"cannot import {file}: no such file")
    sys.modules[file] = loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
