"""Finished runs, and those under way, as one page, as figures and as tables for a paper."""

from dab.report.data import gather
from dab.report.page import render

__all__ = ["gather", "render"]
