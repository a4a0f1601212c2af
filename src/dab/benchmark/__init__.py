"""Run methods over streams, keep what came out, and put it into tables."""

from dab.benchmark.cell import Cell, parse_method
from dab.benchmark.engines.job import Job
from dab.benchmark.results.result import Result, results
from dab.benchmark.running.run import run
from dab.benchmark.tasks.task import Clean, Task, TaskRecipe

__all__ = [
    "Cell",
    "Clean",
    "Job",
    "Result",
    "Task",
    "TaskRecipe",
    "parse_method",
    "results",
    "run",
]
