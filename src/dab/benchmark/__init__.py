"""Run methods over streams and collect their results in tables.

`run_grid` runs a `Grid` of methods, data sets, settings and seeds, or of a single method.
"""

from dab.benchmark.cell import Cell, Method, parse_method
from dab.benchmark.compute import Compute
from dab.benchmark.engines import register_engine
from dab.benchmark.engines.job import Job
from dab.benchmark.grid import Grid, GridResults, run_grid
from dab.benchmark.results.result import Result, results
from dab.benchmark.running.loggers import register_logger
from dab.benchmark.suites import register_suite, suite
from dab.benchmark.tasks import Clean, Task, TaskFactory, TaskRecipe, register_task

__all__ = [
    "Cell",
    "Clean",
    "Compute",
    "Grid",
    "GridResults",
    "Job",
    "Method",
    "Result",
    "Task",
    "TaskFactory",
    "TaskRecipe",
    "parse_method",
    "register_engine",
    "register_logger",
    "register_suite",
    "register_task",
    "results",
    "run_grid",
    "suite",
]
