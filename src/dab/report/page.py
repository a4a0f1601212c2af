"""A report as one HTML file that needs no other file."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from functools import cache
from importlib import resources
from string import Template
from typing import Any

import dab
from dab.report.report import Report
from dab.utils.typed_json import to_json

__all__ = ["policy", "render", "to_json"]

# Concatenated they are the script of the page; each uses those before it.
SCRIPTS = (
    *("parts", "words", "table", "guard", "stream", "domains", "points"),
    *("buffer_view", "correction_view", "runs", "main"),
)


def render(report: Report, *, refresh: float | None = None) -> str:
    """The page of a report.

    Args:
        report: what to show.
        refresh: seconds after which the page asks its server for `data.json`; None: never.
    """
    live = "" if refresh is None else f' data-refresh="{refresh:g}"'
    page = Template(_read("page.html")).substitute(
        css=_read("page.css"),
        js=_script(),
        title=html.escape(f"dab: {report.title}"),
        footer=html.escape(f"Made by dab {dab.__version__}."),
        policy=policy(connect="'none'" if refresh is None else "'self'"),
        data=embedded(to_json(report)),
    )
    return page.replace('<html lang="en">', f'<html lang="en"{live}>', 1)


def policy(connect: str) -> str:
    """The content security policy of the page: no script but its own, no other resource."""
    script = base64.b64encode(hashlib.sha256(_script().encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{script}'; "
        f"img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def embedded(data: Any) -> str:
    """JSON that can be embedded in a page: no name or label can end the script.

    >>> embedded({"title": "</script>"})
    '{"title":"\\\\u003c/script>"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


@cache
def _script() -> str:
    return "\n".join(_read(f"{script}.js") for script in SCRIPTS)


def _read(name: str) -> str:
    return (resources.files("dab.report") / "template" / name).read_text(encoding="utf-8")
