"""Runs, finished or in progress, as one page, as figures and as tables for a paper."""

from dab.report.gather import Report, gather
from dab.report.page import render

__all__ = ["Report", "gather", "render"]
