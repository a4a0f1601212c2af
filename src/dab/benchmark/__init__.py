"""Run methods over streams, keep what came out, and put it into tables."""

from dab.benchmark.cell import Cell, parse_method
from dab.benchmark.result import Result, results
from dab.benchmark.run import run
from dab.benchmark.task import Task, create_task

__all__ = ["Cell", "Result", "Task", "create_task", "parse_method", "results", "run"]
