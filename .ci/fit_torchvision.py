"""Makes `import torchvision` work in this environment beside a CPU build of torch.

On Linux the default torchvision wheel is built for CUDA. Beside a CPU build of torch its compiled
operators cannot be loaded, and importing it (or timm, which imports it) fails: it describes two of
them, nms and qnms, to torch without checking that they are there. No wheel that matches is on the
default index, so this script appends the missing declarations to the installed copy, where
torchvision itself finds out that its operators are missing. Classifiers then work; detection raises
torchvision's own error, as before. A torchvision that can be imported is left alone.

`dab.load_model` does the same at run time for users, whose environment is not ours to edit.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

DECLARATIONS = """

# Added by .ci/fit_torchvision.py of dab: torch must know what _meta_registrations.py describes.
if not _has_ops():
    for _name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, _name):
            _schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{_name}", _schema)
"""


def import_error() -> str:
    """The error of `import torchvision` in a new process; empty if it succeeds."""
    command = [sys.executable, "-c", "import torchvision"]
    result = subprocess.run(command, capture_output=True, text=True)
    return result.stderr if result.returncode else ""


error = import_error()
if "operator torchvision::nms does not exist" in error:
    extension = Path(str(distribution("torchvision").locate_file("torchvision/extension.py")))
    extension.write_text(extension.read_text() + DECLARATIONS)
    error = import_error()
if error:
    sys.exit(f"torchvision cannot be imported:\n{error}")
