"""Hooks of the site: equations without scripts, and pages from outside this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

OUTSIDE = ("CONTRIBUTING.md", "CHANGELOG.md")


def _equation(source: str, *_: Any, **__: Any) -> str:
    """A ```math block as MathML, which browsers draw without a script."""
    return convert(source.strip(), display="block")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    fences["custom_fences"] = [{"name": "math", "class": "math", "format": _equation}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    root = Path(config.config_file_path).parent
    for name in OUTSIDE:
        files.append(File.generated(config, name, content=(root / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links as they are in the repository, for the one folder that the site has."""
    if page.file.src_uri in OUTSIDE:
        return markdown.replace("](docs/", "](")
    for name in OUTSIDE:
        markdown = markdown.replace(f"](../{name}", f"]({name}")
    return markdown
