"""Loggers for other tools, one file each; a tool is imported only when it is asked for."""

from dab.benchmark.running.loggers import mlflow, tensorboard, wandb
from dab.benchmark.running.loggers.logger import Logger, create_logger, loggers, register_logger

__all__ = [
    "Logger",
    "create_logger",
    "loggers",
    "mlflow",
    "register_logger",
    "tensorboard",
    "wandb",
]
