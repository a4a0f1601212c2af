"""Options and commands, with the most similar name for a mistyped one."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from typing import Any

from dab.cli.names import NAMES
from dab.utils.suggest import closest, unknown

__all__ = ["Help", "Parser"]


class Parser(argparse.ArgumentParser):
    """A parser of a command; those of its commands are of this class too."""

    def __init__(self, **options: Any) -> None:
        # An abbreviation would become another option, or none, when options are added.
        super().__init__(**options, allow_abbrev=False)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Refuses unknown options here, where the similar ones are known."""
        found, others = super().parse_known_args(args, namespace)
        if others:
            flag = others[0].partition("=")[0]
            similar = closest(flag, self._option_string_actions)
            hint = f"; did you mean {similar}?" if similar and flag.startswith("-") else ""
            self.error(f"unrecognized arguments: {' '.join(others)}{hint}")
        return found, others

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            kind = "/".join(action.option_strings) or str(action.metavar or action.dest)
            message = unknown(kind, str(value), map(str, action.choices))
            raise argparse.ArgumentError(None, message)


class Help(argparse.RawDescriptionHelpFormatter):
    """Lists the names that an option takes, which registries know."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = super()._get_help_string(action)
        if text is None or action.dest not in NAMES:
            return text
        return f"{text}: {', '.join(NAMES[action.dest]())}".replace("%", "%%")

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)  # whole names
