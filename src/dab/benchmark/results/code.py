"""The code that a run's numbers depend on, as a hash.

**What counts.** The modules that define the method with its base classes, its output correction,
the layers of the model, and the images of the stream; `ROOTS`, which every run goes through; and
all modules of dab that any of these import, directly or through others, at the top of a file or
inside a function.

**What does not.** `EXCLUDED`: what runs, stores, shows or schedules, but never touches an image, a
logit or a label. Whatever such code hands to a run (options, the list of images, weights) is on the
run's card by its content. Saving and loading of states is excluded too: a resumed run has the same
numbers as one without interruption. Nor do comments, docstrings and layout count, nor what a method
says about itself (`DESCRIPTIVE`): what is hashed is the rest of the syntax tree.

Imports are read from the source, without running it. Imports for type checkers do not count.
`CATALOGS` import every method just to register it, so only the names that are really taken from
them are followed. A class from outside the package counts with its own file and what it imports of
dab, unless it belongs to an installed library. Other files that it imports do not count.
"""

from __future__ import annotations

import ast
import inspect
import sysconfig
from collections.abc import Collection, Iterator
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from dab.adapter import DESCRIPTIVE
from dab.utils.fingerprint import fingerprint

__all__ = ["code_fingerprint", "modules_of", "own_code"]

PACKAGE = Path(__file__).parents[2]

ROOTS = ("dab.benchmark.compute", "dab.benchmark.running.evaluation")
CATALOGS = ("dab", "dab.methods")
EXCLUDED = (
    "dab.__main__",
    "dab.benchmark",
    "dab.cli",
    "dab.data.errors",
    "dab.parts.locks",
    "dab.parts.schema",
    "dab.parts.snapshot",
    "dab.parts.state",
    "dab.parts.state_file",
    "dab.report",
    "dab.testing",
    "dab.utils",
)
# Parts of an excluded package that count all the same.
COUNTED = (*ROOTS, "dab.benchmark.results.errors")


class Import(NamedTuple):
    """A module, and the names that are taken from it: none for the module itself."""

    module: str
    names: tuple[str, ...] = ()


@lru_cache(maxsize=256)
def code_fingerprint(classes: frozenset[type]) -> str:
    """A hash of the code that a run with these classes depends on; computed once per process."""
    return own_code(classes)


def own_code(classes: Collection[type], package: Path = PACKAGE) -> str:
    """A hash of the code that a run with these classes depends on.

    Args:
        classes: of the method, its output correction, the model's layers and the stream's images.
        package: folder of the package, if it is not the one that is running.
    """
    own = sorted(_sources(classes, package).items())
    outside = map(_code, _outside_sources(classes))
    return fingerprint(*outside, *chain(*((module, _code(text)) for module, text in own)))


def modules_of(classes: Collection[type], package: Path = PACKAGE) -> set[str]:
    """The modules of dab that a run with these classes depends on."""
    return set(_sources(classes, package))


def _sources(classes: Collection[type], package: Path) -> dict[str, str]:
    """The source text of all modules of dab that these classes and `ROOTS` depend on."""
    waiting = [Import(root) for root in ROOTS]
    waiting += [Import(base.__module__) for cls in classes for base in cls.__mro__]
    for text in _outside_sources(classes):
        waiting += _imports(text, "", False)
    found: dict[str, str] = {}
    while waiting:
        for module in _resolve(waiting.pop(), package):
            if module not in found and _counts(module):
                file = _file(module, package)
                assert file is not None
                found[module] = file.read_text()
                waiting += _imports(found[module], module, file.name == "__init__.py")
    return found


def _outside_sources(classes: Collection[type]) -> list[str]:
    bases = {base for cls in classes for base in cls.__mro__}
    return [file.read_text() for file in sorted({*filter(None, map(_outside, bases))})]


@lru_cache(maxsize=1024)
def _code(text: str) -> str:
    """The syntax tree of a source text without docstrings and descriptions, as text."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
        if isinstance(node, ast.ClassDef) and any(map(_registers, node.decorator_list)):
            node.body = [line for line in node.body if not _describes(line)]
    return repr(_plain(tree))


def _registers(decorator: ast.expr) -> bool:
    """Whether a class decorator is `register(...)`, as that of a method."""
    name = ast.unparse(decorator.func) if isinstance(decorator, ast.Call) else ""
    return name.rpartition(".")[2] == "register"


def _describes(line: ast.stmt) -> bool:
    """Whether a line of a method's class only says something about the method."""
    match line:
        case ast.Assign(targets=[ast.Name(name)]) | ast.AugAssign(target=ast.Name(name)):
            return name in DESCRIPTIVE
    return False


def _plain(value: Any) -> Any:
    """A syntax tree as tuples. Empty fields are left out: newer versions of Python add some."""
    if isinstance(value, ast.AST):
        filled = ((name, _plain(of)) for name, of in ast.iter_fields(value) if of not in (None, []))
        return type(value).__name__, *filled
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _counts(module: str) -> bool:
    if module in COUNTED:
        return True
    return not any(module == name or module.startswith(f"{name}.") for name in EXCLUDED)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "dab"


@lru_cache(maxsize=4096)
def _file(module: str, package: Path) -> Path | None:
    """The file of a module of the package, if there is one."""
    path = package.joinpath(*module.split(".")[1:])
    files = (path / "__init__.py", path.with_suffix(".py"))
    return next((file for file in files if file.exists()), None) if _is_ours(module) else None


def _resolve(wanted: Import, package: Path) -> Iterator[str]:
    """The modules of the package that an import brings in."""
    module, names = wanted
    file = _file(module, package)
    if file is None:
        return
    submodules = [f"{module}.{name}" for name in names if _file(f"{module}.{name}", package)]
    yield from submodules
    if module not in CATALOGS:
        if len(submodules) < len(names) or not names:
            yield module
        return
    for inner in _imports(file.read_text(), module, True):
        if taken := tuple(name for name in inner.names if name in names):
            yield from _resolve(Import(inner.module, taken), package)


@lru_cache(maxsize=1024)
def _imports(text: str, module: str, is_package: bool) -> list[Import]:
    """All imports of dab in a source text."""
    found: list[Import] = []
    for node in _nodes(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [Import(alias.name) for alias in node.names if alias.name not in CATALOGS]
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                parents = module.split(".")
                parents = parents[: len(parents) - node.level + is_package]
                source = ".".join([*parents, *filter(None, [source])])
            found.append(Import(source, tuple(alias.name for alias in node.names)))
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "dab":
            found.append(Import("dab", (node.attr,)))  # after `import dab`
    return [wanted for wanted in found if _is_ours(wanted.module)]


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker sees."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield from _nodes(child)


@cache
def _outside(cls: type) -> Path | None:
    """The file of a class that belongs neither to the package nor to an installed library."""
    if _is_ours(cls.__module__) or cls.__module__ == "builtins":
        return None
    try:
        file = Path(inspect.getfile(cls)).resolve()
    except (OSError, TypeError):  # written in C, or typed in
        return None
    libraries = {Path(folder).resolve() for folder in sysconfig.get_paths().values()}
    return None if libraries & set(file.parents) or not file.exists() else file
