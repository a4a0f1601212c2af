"""The methods, a file each. Importing one registers it."""

from dab.methods.dab import DAB

__all__ = ["DAB"]
