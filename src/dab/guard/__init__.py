"""The guard: `dab.create("tent", model, guard=True)` steps back when adapting does harm."""

from dab.guard.calibration import Calibration
from dab.guard.guard import Action, Guard, GuardOption, create_guard
from dab.guard.health import Health
from dab.guard.risk import RiskMonitor

__all__ = ["Action", "Calibration", "Guard", "GuardOption", "Health", "RiskMonitor", "create_guard"]
