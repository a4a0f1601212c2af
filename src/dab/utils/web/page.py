"""Pages that need nothing but themselves: no other file, host or script."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib import resources
from typing import Any

__all__ = ["asset", "embedded", "policy"]


def asset(package: str, *path: str) -> str:
    """The text of a file in a package."""
    return resources.files(package).joinpath(*path).read_text(encoding="utf-8")


def policy(script: str, *, connect: str) -> str:
    """The content security policy of a page: no script but this, no other resource."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        f"img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def embedded(data: Any) -> str:
    """JSON that can be embedded in a page: no name or label can end the script.

    >>> embedded({"title": "</script>"})
    '{"title":"\\\\u003c/script>"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")
