"""The page of the server. It holds no data: its script asks for them."""

from __future__ import annotations

import html
from functools import cache
from string import Template

import dab
from dab.utils.web.page import asset, policy

__all__ = ["page", "page_policy"]


def page(name: str, method: str, *, every: float) -> str:
    """The page that shows all streams.

    Args:
        name: of the model.
        method: that adapts it, in words.
        every: seconds after which it asks for new data.
    """
    return Template(asset("dab.serve", "template", "page.html")).substitute(
        css=asset("dab.utils.web", "page.css"),
        js=_script(),
        title=html.escape(f"dab: {name}"),
        method=html.escape(method),
        footer=html.escape(f"Served by dab {dab.__version__}."),
        every=f"{every:g}",
    )


def page_policy() -> str:
    """Its content security policy: no script but its own, no connection but to its server."""
    return policy(_script(), connect="'self'") + "; frame-ancestors 'none'"


@cache
def _script() -> str:
    own = asset("dab.serve", "template", "page.js")
    return "\n".join([asset("dab.utils.web", "dom.js"), own])
