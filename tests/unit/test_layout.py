"""The layout of the tests."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent
FOLDERS = {"integration", "twins", "unit"}
MODULES = sorted(file.relative_to(ROOT) for file in TESTS.rglob("*.py"))


def imported(file: Path) -> set[str]:
    """All names that a file imports, with their modules, at any depth."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative imports hide where helpers come from"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def is_test(name: str) -> bool:
    return name.startswith("tests.") and any(part.startswith("test_") for part in name.split("."))


def test_no_module_imports_a_test():
    """Helpers are shared in tests/support, fixtures in conftest.py."""
    found = {str(file): sorted(filter(is_test, imported(ROOT / file))) for file in MODULES}
    assert {file: names for file, names in found.items() if names} == {}


def test_every_test_is_in_a_folder_of_its_kind():
    tests = [file for file in MODULES if file.name.startswith("test_")]
    assert tests
    assert [str(file) for file in tests if file.parts[1:-1] not in {(f,) for f in FOLDERS}] == []


def test_only_integration_tests_start_a_python_process():
    """A new interpreter imports torch first, which takes seconds."""
    others = [file for file in MODULES if file.parts[1] in {"twins", "unit"}]
    assert [str(file) for file in others if "subprocess" in imported(ROOT / file)] == []


def test_names_of_tests_are_told_from_helpers(tmp_path):
    file = tmp_path / "module.py"
    file.write_text(
        "import tests.unit.test_cache\n"
        "from tests.support.nets import net\n"
        "def late():\n"
        "    from tests.unit import test_models\n"
        "    from tests.twins.test_tent import Twin\n"
    )
    assert sorted(filter(is_test, imported(file))) == [
        "tests.twins.test_tent.Twin",
        "tests.unit.test_cache",
        "tests.unit.test_models",
    ]
