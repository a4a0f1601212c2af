"""A report as one HTML file that needs no other file."""

from __future__ import annotations

import html
from functools import cache
from string import Template

import dab
from dab.report.report import Report
from dab.utils.typed_json import to_json
from dab.utils.web import page as web

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
        css=web.asset("dab.utils.web", "page.css"),
        js=_script(),
        title=html.escape(f"dab: {report.title}"),
        footer=html.escape(f"Made by dab {dab.__version__}."),
        policy=policy(connect="'none'" if refresh is None else "'self'"),
        data=web.embedded(to_json(report)),
    )
    return page.replace('<html lang="en">', f'<html lang="en"{live}>', 1)


def policy(connect: str) -> str:
    """The content security policy of the page."""
    return web.policy(_script(), connect=connect)


@cache
def _script() -> str:
    own = (_read(f"{script}.js") for script in SCRIPTS)
    return "\n".join([web.asset("dab.utils.web", "dom.js"), *own])


def _read(name: str) -> str:
    return web.asset("dab.report", "template", name)
