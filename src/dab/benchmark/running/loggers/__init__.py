"""Loggers for other tools, one file each; a tool is imported only when it is asked for."""

from dab.benchmark.running.loggers import mlflow, tensorboard, wandb
from dab.benchmark.running.loggers.logger import LOGGERS, Logger, create_logger, register_logger

__all__ = [
    "LOGGERS",
    "Logger",
    "create_logger",
    "mlflow",
    "register_logger",
    "tensorboard",
    "wandb",
]
