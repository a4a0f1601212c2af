"""Settings of all tests."""

from hypothesis import settings

# A busy machine is no failure: nothing here is a timed test.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
