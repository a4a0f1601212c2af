"""A report as one HTML file that needs nothing besides."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

import dab

__all__ = ["render"]

# One after the other they are the script of the page; each needs those before it.
SCRIPTS = ("parts", "table", "stream", "domains", "points", "inside", "runs", "main")


def render(data: Mapping[str, Any], *, refresh: float | None = None) -> str:
    """The page of what `gather` found.

    Args:
        data: what to show.
        refresh: seconds after which the page asks its server for `data.json`; None: never.
    """
    live = "" if refresh is None else f' data-refresh="{refresh:g}"'
    page = Template(_read("page.html")).substitute(
        css=_read("page.css"),
        js="\n".join(_read(f"{script}.js") for script in SCRIPTS),
        title=html.escape(f"dab: {data['title']}"),
        footer=html.escape(f"Made by dab {dab.__version__}."),
        connect="'none'" if refresh is None else "'self'",
        data=embedded(data),
    )
    return page.replace('<html lang="en">', f'<html lang="en"{live}>', 1)


def embedded(data: Mapping[str, Any]) -> str:
    """JSON that may stand in a page: no name or label can end the script.

    >>> embedded({"title": "</script>"})
    '{"title":"\\\\u003c/script>"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _read(name: str) -> str:
    return (resources.files("dab.report") / "template" / name).read_text(encoding="utf-8")
