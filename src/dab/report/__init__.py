"""Runs, finished or in progress, as one page, as figures and as tables for a paper."""

from dab.report.page import render
from dab.report.report import Report, gather

__all__ = ["Report", "gather", "render"]
