"""How many inputs tests make up: few, or many with `--hypothesis-profile=fuzz`, none over 5 s."""

from hypothesis import HealthCheck, settings

MANY = settings.get_current_profile_name() == "fuzz"
QUICK = settings(
    max_examples=400 if MANY else 40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
# Each input takes a quarter of a second.
SLOW = settings(QUICK, max_examples=400 if MANY else 8)
# The same for each of many questions.
FEW = settings(QUICK, max_examples=400 if MANY else 15)
