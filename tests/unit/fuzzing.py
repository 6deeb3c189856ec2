"""How many inputs tests make up: few, or as many as `make test-fuzz` asks for, none of them over 5 s."""

import os

from hypothesis import HealthCheck, settings

_INPUTS = os.environ.get("HVLAB_FUZZ_INPUTS")
QUICK = settings(
    max_examples=int(_INPUTS or 60),
    deadline=5000 if _INPUTS else None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
# Each input takes a quarter of a second.
SLOW = settings(QUICK, max_examples=int(_INPUTS or 12))
