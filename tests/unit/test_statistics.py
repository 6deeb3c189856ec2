"""Warm-up, intervals, verdicts and slow hosts on synthetic series whose truth is known.

Draws are seeded, so that a rate is the same at every run of the tests.
"""

import itertools
import math
import statistics
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from scipy import special, stats

from hvlab.statistics import distribution, functions, interval, permutation, straggler, verdict, welch
from hvlab.statistics.interval import Interval
from hvlab.statistics.verdict import Pair
from tests.unit.fuzzing import MANY


def compared(a, b, *, better="low", **options):
    """The verdict on one pair alone."""
    pair = Pair(dict(enumerate(a)), dict(enumerate(b)), better)
    return verdict.compare_all([pair], **options)[0]


def few(trials: int) -> int:
    return trials if MANY else trials // 3


Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
# Relative noise around 1 of each launch, in rows; a column is a cell.
NOISE: dict[str, Draw] = {
    "normal": lambda draw, shape: np.exp(0.05 * draw.normal(size=shape)),
    "lognormal": lambda draw, shape: 1 + 0.1 * draw.lognormal(0, 1, size=shape),
    "heavy_tails": lambda draw, shape: np.exp(0.05 * draw.standard_t(2, size=shape)),
    "slow_outliers": lambda draw, shape: (
        (1 + 0.02 * draw.normal(size=shape))
        * (1 + (draw.random(shape) < 0.1) * draw.exponential(2, size=shape))
    ),
    "two_modes": lambda draw, shape: (
        (1 + 0.01 * draw.normal(size=shape)) * (1 + 0.15 * (draw.random(shape) < 0.5))
    ),
}


def autocorrelated(draw: np.random.Generator, size: int, lag: float) -> list[float]:
    values = [draw.normal()]
    for step in draw.normal(size=size + 50):
        values.append(lag * values[-1] + math.sqrt(1 - lag * lag) * step)
    return values[-size:]


# Warm-up


def series(size: int, lead: list[float], *, noise: float = 0.02, seed: int = 0) -> list[float]:
    """A series around 1; ``lead`` is added to its first values."""
    values = 1 + noise * np.random.default_rng(seed).normal(size=size)
    values[: len(lead)] += lead
    return [float(value) for value in values]


@pytest.mark.parametrize("size", [25, 1000])
@pytest.mark.parametrize("kind", NOISE)
def test_a_flat_series_has_no_warmup(size, kind):
    draw = np.random.default_rng(size)
    found = [distribution.warmup_length(NOISE[kind](draw, (size, 1))[:, 0].tolist()) for _ in range(60)]
    # A first value that is an outlier, or of the slower mode, cannot be told from a warm-up.
    share = {"slow_outliers": 0.8, "two_modes": 0.8, "heavy_tails": 0.9, "lognormal": 0.9}.get(kind, 0.95)
    assert found.count(0) >= share * len(found)
    assert sum(found) / len(found) < 0.05 * size


@pytest.mark.parametrize(
    ("size", "lead"),
    [
        (25, [0.5]),
        (25, [9.0]),
        (25, [0.2, 0.2, 0.2]),
        (25, [0.1] * 4),
        (25, [-0.1] * 4),
        (30, [0.1] * 10),
        (100, [3.0, 1.0, 0.5, 0.3, 0.2, 0.1]),
        (100, [0.1] * 33),
        (1000, [0.3] * 200),
    ],
)
def test_a_known_warmup_is_found(size, lead):
    found = [distribution.warmup_length(series(size, lead, seed=seed)) for seed in range(40)]
    assert statistics.median(found) in range(len(lead), len(lead) + 2)
    missed = sum(cut < len(lead) for cut in found)
    assert missed <= 2
    assert max(found) <= size // 2


def test_a_slow_decay_is_cut_where_it_drowns_in_noise():
    size, tau = 100, 10
    decay = [math.exp(-i / tau) for i in range(size)]
    found = [distribution.warmup_length(series(size, decay, seed=seed)) for seed in range(20)]
    # exp(-3) and exp(-5) of the first excess: 2.5 and 0.3 times the noise.
    assert all(3 * tau <= cut <= 5 * tau for cut in found)


@pytest.mark.parametrize("place", [1, 5, 12, 24])
def test_one_spike_is_no_warmup(place):
    changed = 0
    for seed in range(30):
        values = series(25, [], seed=seed)
        before = distribution.warmup_length(values)
        values[place] *= 10
        changed += distribution.warmup_length(values) > before
    # The other of the first two may well be unusual, too.
    assert changed <= (5 if place == 1 else 1)


def test_a_spike_does_not_hide_a_warmup():
    found = []
    for seed in range(20):
        values = series(40, [0.5] * 5, seed=seed)
        values[30] *= 10
        found.append(distribution.warmup_length(values))
    assert min(found) == statistics.median(found) == 5


@pytest.mark.parametrize("drift", [0.3, -0.3, 1.0])
def test_a_drift_to_the_end_is_no_warmup(drift):
    found = [
        distribution.warmup_length(series(50, [drift * i / 50 for i in range(50)], seed=seed))
        for seed in range(40)
    ]
    assert found.count(0) >= 38


def test_the_first_iteration_before_a_drift_is():
    found = [
        distribution.warmup_length(series(100, [1.0, *(0.1 * i / 100 for i in range(1, 100))], seed=seed))
        for seed in range(20)
    ]
    assert statistics.median(found) == 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], 0),
        ([9.0, 1.0, 1.0, 1.0], 0),
        ([1.0] * 30, 0),
        ([0.0] * 30, 0),
        ([2.0] + [1.0] * 29, 1),
        ([2.0] * 5 + [1.0, 1.0, 1.0001] * 10, 5),
        ([2.0] * 20 + [1.0] * 10, 0),
    ],
    ids=["empty", "short", "flat", "zero", "first", "coarse_clock", "more_than_half"],
)
def test_warmup_of_plain_series(values, expected):
    assert distribution.warmup_length(values) == expected


# Interval of a median


@pytest.mark.parametrize("values", [[3.5], [2.0, 2.0, 2.0]])
def test_one_value_is_its_own_interval(values):
    assert interval.median(values) == Interval(values[0], values[0], values[0])


def test_no_value_has_no_median():
    with pytest.raises(ValueError, match="no value"):
        interval.median([])


def test_the_interval_of_few_values_is_their_range():
    assert interval.median([3.0, 1.0, 2.0]) == Interval(1.0, 2.0, 3.0)
    assert interval.median([5.0, 1.0, 2.0, 3.0, 4.0]) == Interval(1.0, 3.0, 5.0)


@pytest.mark.parametrize("size", [8, 25, 26])
def test_the_interval_is_that_of_a_drawn_bootstrap(size):
    draw = np.random.default_rng(size)
    values = draw.lognormal(size=size)
    assert interval.block(values.tolist()) == 1
    medians = np.median(draw.choice(values, (40_000, size)), axis=1)
    found = interval.median(values.tolist())
    ordered = sorted(values)
    for bound, share in ((found.low, 0.025), (found.high, 0.975)):
        drawn = float(np.quantile(medians, share))
        # With an even number, a drawn median may lie between two values: the outer one is taken.
        assert abs(ordered.index(bound) - np.searchsorted(ordered, drawn)) <= 1


@pytest.mark.parametrize("size", [25, 26, 100])
@pytest.mark.parametrize("kind", ["normal", "lognormal"])
def test_the_interval_covers_the_median(size, kind):
    draw = np.random.default_rng(7)
    true = float(np.median(NOISE[kind](draw, (200_000, 1))))
    found = [interval.median(NOISE[kind](draw, (size, 1))[:, 0].tolist()) for _ in range(400)]
    assert 0.93 <= sum(one.low <= true <= one.high for one in found) / len(found) <= 0.99


@pytest.mark.parametrize(("lag", "size", "least"), [(0.3, 100, 0.89), (0.5, 100, 0.88), (0.8, 400, 0.89)])
def test_the_interval_of_a_correlated_series_is_wider(lag, size, least):
    draw = np.random.default_rng(3)
    found = []
    for _ in range(150):
        values = autocorrelated(draw, size, lag)
        shuffled = draw.permutation(values).tolist()
        found.append((interval.median(values), interval.median(shuffled)))
    assert sum(one.low <= 0 <= one.high for one, _ in found) / len(found) >= least
    kept = statistics.fmean(one.high - one.low for one, _ in found)
    lost = statistics.fmean(other.high - other.low for _, other in found)
    assert kept > lost * (1 + lag / 5)


def test_the_mean_has_students_interval():
    found = interval.mean([1.0, 2.0, 3.0])
    assert (found.low, found.mid, found.high) == pytest.approx((2 - 2.4841, 2.0, 2 + 2.4841), abs=1e-4)
    assert interval.mean([4.0]) == interval.Interval(-math.inf, 4.0, math.inf)


def test_the_level_widens_the_interval():
    values = np.random.default_rng(0).normal(size=50).tolist()
    narrow, wide = interval.median(values, level=0.5), interval.median(values, level=0.99)
    assert wide.low < narrow.low <= narrow.mid <= narrow.high < wide.high


def test_only_what_needs_them_loads_the_large_libraries():
    code = (
        "import sys; from hvlab.statistics import distribution, interval;"
        "distribution.warmup_length([1.0, 2.0] * 20);"
        "print([name for name in ('numpy', 'scipy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


# Ratio of two medians


@pytest.mark.parametrize(
    ("a", "b", "critical"), [(4, 4, 0), (5, 5, 2), (8, 8, 13), (6, 10, 11), (10, 10, 23)]
)
def test_as_many_quotients_are_left_out_as_mann_and_whitney_have(a, b, critical):
    # Tables of the two-sided test at 5 %: the largest U that is significant.
    one, other = [1.0 + i / 100 for i in range(a)], [1.003 + i / 70 for i in range(b)]
    quotients = sorted(x / y for x in one for y in other)
    found = interval.medians(one, other)
    assert (found.low, found.high) == (quotients[critical], quotients[-1 - critical])


def test_three_repeats_have_their_range():
    assert interval.medians([1.0, 2.0, 3.0], [1.0, 1.0, 2.0]) == Interval(0.5, 2.0, 3.0)


@pytest.mark.parametrize("kind", NOISE)
def test_the_interval_covers_the_ratio(kind):
    draw = np.random.default_rng(11)
    covered = 0
    for _ in range(300):
        a, b = 0.8 * NOISE[kind](draw, (5, 1)), NOISE[kind](draw, (5, 1))
        found = interval.medians(a[:, 0].tolist(), b[:, 0].tolist())
        covered += found.low <= 0.8 <= found.high
    assert covered >= 0.93 * 300


@pytest.mark.parametrize(("a", "b"), [([], [1.0]), ([1.0], []), ([0.0], [1.0]), ([1.0], [-1.0])])
def test_no_ratio(a, b):
    assert interval.medians(a, b) is None


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Interval(0.85, 0.9, 0.95), "10.0 % lower (5.0 % to 15.0 %)"),
        (Interval(0.95, 1.1, 1.2), "10.0 % higher (5.0 % lower to 20.0 % higher)"),
        (Interval(1.0, 1.0, 1.0), "0.0 % higher (0.0 % to 0.0 %)"),
    ],
)
def test_a_ratio_in_words(found, told):
    assert interval.words(found) == told


# Verdicts

FASTER = ([1.00, 1.01, 0.99, 1.00, 1.02], [1.10, 1.12, 1.09, 1.10, 1.13])


@pytest.mark.parametrize(
    ("a", "b", "better", "kind"),
    [
        (*FASTER, "low", "faster"),
        (*FASTER, "high", "slower"),
        (*reversed(FASTER), "low", "slower"),
        (*reversed(FASTER), "high", "faster"),
        ([1.0] * 5, [1.1] * 5, "low", "faster"),
        ([1.0] * 5, [1.0] * 5, "low", "same"),
        ([0.0] * 5, [0.0] * 5, "high", "same"),
        ([0.0] * 5, [1.0] * 5, "high", "unclear"),
        ([1.0, 1.3, 0.8, 1.1, 0.9], [1.2, 1.0, 0.9, 1.4, 1.1], "low", "unclear"),
        ([1.000, 1.001, 1.002, 1.000, 1.001], [1.01, 1.011, 1.012, 1.01, 1.011], "low", "same"),
    ],
)
def test_verdicts(a, b, better, kind):
    assert compared(a, b, better=better).kind == kind


def test_a_verdict_tells_what_it_rests_on():
    found = compared(*FASTER)
    quotients = sorted(one / other for one in FASTER[0] for other in FASTER[1])
    assert found.ratio == Interval(quotients[2], pytest.approx(1 / 1.1), quotients[22])
    assert found.reason == "5 repeats each"
    assert found.chance == pytest.approx(2 / 252)


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        (0, 3, "0 and 3 repeats, a verdict needs 5"),
        (1, 1, "1 repeat each, a verdict needs 5"),
        (4, 4, "4 repeats each, a verdict needs 5"),
        (200, 2, "200 and 2 repeats, a verdict needs 5"),
    ],
)
def test_too_few_repeats_are_said_with_the_number_that_would_do(a, b, reason):
    found = compared([1.0 + i / 1e4 for i in range(a)], [2.0 + i / 1e4 for i in range(b)])
    assert (found.kind, found.reason, found.needed, found.chance) == ("too_few", reason, 5, None)


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.002])
def test_the_number_that_would_do_does(alpha):
    needed = compared([1.0], [2.0], alpha=alpha).needed
    for count, kind in ((needed, "faster"), (needed - 1, "too_few")):
        a, b = [1 + i / 1000 for i in range(count)], [2 + i / 1000 for i in range(count)]
        assert compared(a, b, alpha=alpha).kind == kind


def test_unequal_numbers_of_repeats_can_do():
    assert compared([1.0, 1.01, 0.99], [1.5 + i / 100 for i in range(10)]).kind == "faster"


@pytest.mark.parametrize(("matters", "kind"), [(0.05, "unclear"), (0.02, "faster"), (0.2, "same")])
def test_a_difference_has_to_matter(matters, kind):
    a, b = [1.00, 1.001, 0.999, 1.0, 1.002], [1.04, 1.049, 1.03, 1.041, 1.06]
    found = compared(a, b, matters=matters)
    assert found.kind == kind
    assert (f"{100 * matters:g} %" in found.reason) == (kind != "faster")


def pairs(a: np.ndarray, b: np.ndarray, sizes: int = 1) -> list[Pair]:
    """Columns as pairs; that many neighbours are from one launch on each side."""
    return [
        Pair(
            dict(enumerate(one.tolist())),
            dict(enumerate(other.tolist())),
            launches=(("a", column // sizes), ("b", column // sizes)),
        )
        for column, (one, other) in enumerate(zip(a.T, b.T, strict=True))
    ]


def alarmed(found: list[verdict.Verdict]) -> bool:
    return any(one.kind in ("faster", "slower") for one in found)


@pytest.mark.parametrize(("repeats", "count", "trials"), [(5, 1, 1500), (5, 6, 600), (8, 3, 300)])
@pytest.mark.parametrize("kind", NOISE if MANY else ("normal", "slow_outliers"))
def test_false_alarms_are_at_most_one_percent_of_comparisons(kind, repeats, count, trials):
    draw, trials = np.random.default_rng(2024), few(trials)
    alarms = sum(
        alarmed(verdict.compare_all(pairs(*np.split(NOISE[kind](draw, (2 * repeats, count)), 2))))
        for _ in range(trials)
    )
    assert alarms <= 0.01 * trials


@pytest.mark.parametrize("wider", [3, 10])
def test_a_noisier_side_is_no_faster_or_slower_side(wider):
    draw = np.random.default_rng(5)
    trials, alarms = few(400), 0
    for _ in range(trials):
        a, b = draw.normal(size=(5, 2)), wider * draw.normal(size=(5, 2))
        alarms += alarmed(verdict.compare_all(pairs(np.exp(0.01 * a), np.exp(0.01 * b))))
    assert alarms <= 0.015 * trials


def test_configurations_that_share_their_noise_raise_no_more_alarms():
    draw = np.random.default_rng(6)
    trials, alarms = few(500), 0
    for _ in range(trials):
        shared, own = draw.normal(size=(10, 1)), draw.normal(size=(10, 6))
        noise = np.exp(0.05 * shared + 0.01 * own)
        alarms += alarmed(verdict.compare_all(pairs(noise[:5], noise[5:])))
    assert alarms <= 0.01 * trials


@pytest.mark.parametrize("layouts", [1, 2, 3])
def test_sizes_of_one_launch_raise_no_more_alarms(layouts):
    # The sizes of a sweep share the noise of their launch, each side's its own.
    draw = np.random.default_rng(1)
    trials, alarms = few(400), 0
    for _ in range(trials):
        common, own = draw.normal(size=(2, 5, layouts)), draw.normal(size=(2, 5, 9 * layouts))
        a, b = np.exp(0.03 * (np.repeat(common, 9, axis=2) + 0.3 * own))
        alarms += alarmed(verdict.compare_all(pairs(a, b, sizes=9)))
    assert alarms <= 0.01 * trials


def test_sizes_of_one_launch_of_a_noisier_side_raise_no_more_alarms():
    draw = np.random.default_rng(5)
    trials, alarms = few(400), 0
    for _ in range(trials):
        a, b = (np.repeat(spread * draw.normal(size=(5, 1)), 9, axis=1) for spread in (0.03, 0.3))
        own = np.exp(0.01 * draw.normal(size=(2, 5, 9)))
        alarms += alarmed(verdict.compare_all(pairs(np.exp(a) * own[0], np.exp(b) * own[1], sizes=9)))
    assert alarms <= 0.01 * trials


def test_a_round_is_known_from_launches_not_from_their_sizes():
    draw = np.random.default_rng(2)
    rounds_by = 0.5 * draw.normal(size=(5, 1))
    a, b = (rounds_by + 0.01 * draw.normal(size=(5, 8)) for _ in "ab")
    shared = np.array([[0] * 8, [1] * 8])
    assert welch.round_effects(a, b, launched_alone(8)) == pytest.approx(
        (rounds_by - np.median(rounds_by)).ravel(), abs=0.03
    )
    assert welch.round_effects(a, b, shared).tolist() == [0.0] * 5


def test_sizes_of_a_launch_count_once_in_its_round():
    # Fifteen launches of one size that stay, and one of forty sizes whose second round is bad.
    a, b = np.zeros((3, 8 + 39)), np.zeros((3, 8 + 39))
    a[1, 7:] = 1.0
    launches = np.array([[*range(7), *[7] * 40], [*range(8, 15), *[15] * 40]])
    assert welch.round_effects(a, b, launches).tolist() == [0.0] * 3


def test_a_launch_of_two_sizes_counts_by_the_middle_between_them():
    a = np.zeros((3, 16))
    a[1] = [1, 3] * 8
    assert welch.round_effects(a, a, np.arange(32).reshape(2, 16) // 2).tolist() == [0, 2, 0]


@pytest.mark.parametrize(
    ("repeats", "count", "power"), [(5, 1, 0.97), (5, 8, 0.8), (7, 8, 0.93), (8, 30, 0.9)]
)
def test_ten_percent_at_two_percent_noise_is_found(repeats, count, power):
    draw = np.random.default_rng(1)
    trials, found = few(150), 0
    for _ in range(trials):
        a, b = np.split(np.exp(0.02 * draw.normal(size=(2 * repeats, count))), 2)
        b[:, 0] *= 1.1
        found += verdict.compare_all(pairs(a, b))[0].kind == "faster"
    assert found >= power * trials


@pytest.mark.parametrize("drift", [0.0, 0.5])
def test_a_seven_fold_difference_in_two_of_ten_is_faster(drift):
    draw = np.random.default_rng(3)
    trials, found = 60, 0
    for _ in range(trials):
        hours = drift * draw.normal(size=(5, 1))
        a, b = (np.exp(hours + 0.5 * draw.normal(size=(5, 10))) for _ in "ab")
        b[:, :2] *= 7
        kinds = [one.kind for one in verdict.compare_all(pairs(a, b))]
        found += kinds[:2].count("faster")
        assert kinds[2:].count("unclear") >= 7
    assert found >= 0.85 * 2 * trials


def test_drift_hides_no_difference_among_many_comparisons_and_makes_none():
    draw = np.random.default_rng(9)
    trials, found, alarms = 100, 0, 0
    for _ in range(trials):
        hours = np.linspace(0, 0.5, 5)[:, None] + 0.1 * draw.normal(size=(5, 1))
        a, b = (np.exp(hours + 0.03 * draw.normal(size=(5, 10))) for _ in "ab")
        b[:, 0] *= 1.25
        verdicts = verdict.compare_all(pairs(a, b))
        found += verdicts[0].kind == "faster"
        alarms += alarmed(verdicts[1:])
    assert found >= 0.97 * trials
    assert alarms <= 0.01 * trials


def test_other_configurations_being_faster_makes_no_alarm_of_those_that_are_not():
    draw = np.random.default_rng(8)
    trials, alarms, found = few(300), 0, 0
    for _ in range(trials):
        a, b = np.split(np.exp(0.03 * draw.normal(size=(10, 6))), 2)
        b[:, :3] *= 1.5
        told = verdict.compare_all(pairs(a, b))
        found += all(one.kind == "faster" for one in told[:3])
        alarms += alarmed(told[3:])
    assert alarms <= 0.01 * trials
    assert found >= 0.9 * trials


def test_repeats_that_failed_in_some_configurations_do_not_spoil_the_others():
    draw = np.random.default_rng(4)
    a, b = np.split(np.exp(0.01 * draw.normal(size=(12, 3))), 2)
    whole = pairs(a, 1.3 * b)
    gaps = [Pair({k: v for k, v in whole[0].a.items() if k != 3}, whole[0].b), whole[1]]
    lost = Pair({0: 1.0}, whole[2].b)
    assert [one.kind for one in verdict.compare_all([*gaps, lost])] == ["faster", "faster", "too_few"]


def test_no_pair_no_verdict():
    assert verdict.compare_all([]) == []


def test_holm():
    assert welch.holm(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert welch.holm(np.array([0.9, 0.9])).tolist() == [1.0, 1.0]


def columns(*sides):
    """One column for each side's values; the shorter end in NaN."""
    return np.array(list(itertools.zip_longest(*sides, fillvalue=math.nan)), dtype=float)


def test_welch_is_the_textbook_one_for_a_single_comparison():
    a, b = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9], [27.1, 22.0, 20.8, 23.4, 23.4]
    (chance,) = welch.chances(columns(a), columns(b))
    assert chance == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue)
    longer = [*a, 30.0, 25.0], [*b, 24.0, 22.0, 60.0]
    (chance,) = welch.chances(columns(longer[0]), columns(longer[1]))
    assert chance == pytest.approx(stats.ttest_ind(*longer, equal_var=False, trim=0.15).pvalue)


def test_missing_repeats_do_not_change_welch():
    a, b = columns([1.0, 2.0, 4.0, 3.0, 9.0], [1.0, 2.5, 2.0]), columns([5.0, 6.0, 9.0], [4.0, 4.5, 8.0, 2.0])
    expected = [
        stats.ttest_ind(x, y, equal_var=False, nan_policy="omit").pvalue
        for x, y in zip(a.T, b.T, strict=True)
    ]
    assert welch.chances(a, b) == pytest.approx(expected)


def test_sides_without_spread_have_no_chance_or_a_sure_one():
    a, b = np.array([[1.0, 1.0]] * 3), np.array([[1.0, 2.0]] * 3)
    assert welch.chances(a, b).tolist() == [1.0, 0.0]


# Variances


def test_variances_that_differ_by_chance_become_one():
    draw = np.random.default_rng(0)
    variances = np.var(draw.normal(size=(5, 400)), axis=0, ddof=1)
    drawn, freedom = welch.squeeze(variances, np.full(400, 4.0))
    assert np.ptp(np.log(drawn)) < 0.1 * np.ptp(np.log(variances))
    assert np.median(drawn) == pytest.approx(1, rel=0.1)
    assert freedom.min() > 40


def test_copies_of_a_variance_make_it_no_surer():
    draw = np.random.default_rng(0)
    variances = np.repeat(np.var(draw.normal(size=(5, 3)), axis=0, ddof=1), 9)
    launches = np.repeat(np.arange(3), 9)
    drawn, freedom = welch.squeeze(variances, np.full(27, 4.0), launches)
    assert freedom.max() <= 12
    _, alone = welch.squeeze(
        np.full(9, 2.0) * np.exp(0.01 * draw.normal(size=9)), np.full(9, 4.0), np.zeros(9, int)
    )
    assert alone == pytest.approx(np.full(9, 4.0))
    assert np.ptp(drawn) < np.ptp(variances)


def test_variances_that_differ_stay_apart():
    draw = np.random.default_rng(0)
    scale = np.exp(2 * draw.normal(size=400))
    variances = scale**2 * np.var(draw.normal(size=(5, 400)), axis=0, ddof=1)
    drawn, freedom = welch.squeeze(variances, np.full(400, 4.0))
    assert np.corrcoef(np.log(drawn), np.log(scale))[0, 1] > 0.9
    assert freedom.max() < 6


def test_the_prior_is_that_of_which_the_variances_were_drawn():
    # The true variances are 8 over chi-squared with 8 degrees of freedom; each one's own are 4 more.
    draw = np.random.default_rng(1)
    variances = 8 / draw.chisquare(8, size=20_000) * draw.chisquare(4, size=20_000) / 4
    drawn, freedom = welch.squeeze(variances, np.full(20_000, 4.0))
    assert freedom[0] == pytest.approx(12, rel=0.05)
    assert drawn == pytest.approx((4 * variances + 8) / 12, rel=0.05)


@pytest.mark.parametrize("variances", [[], [1.0], [1.0, 9.0], [0.0, 0.0, 0.0, 1.0]])
def test_too_few_variances_stay_as_they_are(variances):
    given = np.array(variances), np.full(len(variances), 4.0)
    assert [part.tolist() for part in welch.squeeze(*given)] == [part.tolist() for part in given]


@pytest.mark.parametrize("value", [1e-3, 0.5, 3.0, 1e3])
def test_the_inverse_of_trigamma(value):
    assert special.polygamma(1, welch.trigamma_inverse(value)) == pytest.approx(value)


# Rounds


def launched_alone(columns: int) -> np.ndarray:
    """Launches of which each has one column on one side."""
    return np.arange(2 * columns).reshape(2, columns)


def test_what_a_round_does_to_all_is_known():
    draw = np.random.default_rng(0)
    effects = np.array([0.0, 0.3, -0.2, 0.0, 1.0])
    a, b = np.split(0.01 * draw.normal(size=(10, 20)) + draw.normal(size=20), 2)
    a, b = a + effects[:, None], b + effects[:, None]
    b[:, :15] += 2  # how far the sides are apart does not matter
    assert welch.round_effects(a, b, launched_alone(20)) == pytest.approx(effects, abs=0.02)


def test_rounds_of_one_side_and_of_few_comparisons_are_left_alone():
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=(2, 5, 10))
    a[0, :3] = b[1, :] = math.nan
    effects = welch.round_effects(a, b, launched_alone(10))
    assert effects[:2].tolist() == [0, 0]
    assert effects[2:].any()
    assert not welch.round_effects(a[:, 3:], b[:, 3:], launched_alone(7)).any()


def test_all_labellings_are_taken_while_they_are_few():
    assert permutation.labellings(5, 5).shape == (252, 10)
    assert permutation.labellings(5, 5)[0].tolist() == [1] * 5 + [0] * 5
    many = permutation.labellings(10, 12)
    assert many.shape == (2000, 22)
    assert set(many.sum(axis=1)) == {10}
    assert many[0].tolist() == [1] * 10 + [0] * 12


# Slow hosts


def launches(times: np.ndarray) -> list[dict[str, float]]:
    """Launches in rows, hosts n1, n2, ... in columns."""
    return [{f"n{number}": float(time) for number, time in enumerate(row, start=1)} for row in times]


@pytest.mark.parametrize("hosts", [2, 3, 8])
def test_hosts_alike_are_named_in_at_most_one_percent_of_labs(hosts):
    draw = np.random.default_rng(31)
    trials = 100 * len(NOISE)
    count = straggler.count_launches(hosts) + 2
    alarms = sum(
        bool(straggler.stragglers([launches(noise(draw, (count, hosts)) ** 3)]))
        for noise in NOISE.values()
        for _ in range(trials // len(NOISE))
    )
    assert alarms <= 0.01 * trials


@pytest.mark.parametrize("hosts", [2, 3, 8])
def test_a_slow_host_is_named_with_how_slow(hosts):
    draw = np.random.default_rng(hosts)
    for _ in range(30):
        times = np.exp(0.02 * draw.normal(size=(straggler.count_launches(hosts), hosts)))
        times[:, hosts - 1] *= 1.2
        (found,) = straggler.stragglers([launches(times)])
        assert found.host == f"n{hosts}"
        assert found.slower.low <= 1.2 * 1.02
        assert found.slower.high >= 1.2 / 1.02
        assert found.launches == len(times)


def test_two_slow_hosts_are_both_named():
    times = np.exp(0.02 * np.random.default_rng(0).normal(size=(10, 8)))
    times[:, 2] *= 1.5
    times[:, 5] *= 1.2
    assert [found.host for found in straggler.stragglers([launches(times)])] == ["n3", "n6"]


def test_one_bad_hour_does_not_make_a_slow_host():
    times = np.exp(0.02 * np.random.default_rng(0).normal(size=(12, 3)))
    times[3, 1] *= 20
    assert straggler.stragglers([launches(times)]) == []


def test_slower_by_less_than_matters_is_not_named():
    times = np.exp(0.001 * np.random.default_rng(0).normal(size=(12, 3)))
    times[:, 1] *= 1.03
    assert straggler.stragglers([launches(times)]) == []
    assert straggler.stragglers([launches(times)], matters=0.02)[0].host == "n2"


@pytest.mark.parametrize("hosts", [2, 3, 5, 10, 100])
def test_the_launches_needed_do_and_fewer_do_not(hosts):
    needed = straggler.count_launches(hosts)
    times = np.ones((needed, hosts))
    times[:, 0] = 2
    assert [found.host for found in straggler.stragglers([launches(times)])] == ["n1"]
    assert straggler.stragglers([launches(times[:-1])]) == []


def test_launches_of_some_hosts_count_for_those():
    draw = np.random.default_rng(0)
    three, two = (np.exp(0.02 * draw.normal(size=(6, count))) for count in (3, 2))
    three[:, 1] *= 1.2
    two[:, 1] *= 1.2
    groups = [launches(three), launches(1e6 * two)]
    assert [(found.host, found.launches) for found in straggler.stragglers(groups)] == [("n2", 12)]


@pytest.mark.parametrize("groups", [[], [[]], [[{"n1": 1.0}]], [[{"n1": 1.0, "n2": 0.0}]]])
def test_nothing_to_compare_names_nobody(groups):
    assert straggler.stragglers(groups) == []
    assert straggler.slowest(groups) is None


# Special functions, held against scipy's

FREEDOMS = np.array([0.5, 1, 1.3, 2, 3.7, 10, 33.3, 1000, 1e5])


def test_polygamma_is_scipy_s():
    at = np.array([0.05, 0.5, 1, 3.7, 10, 1e3, 1e8, 1e30])
    assert functions.polygamma(0, at) == pytest.approx(special.digamma(at), rel=1e-12)
    for order in (1, 2):
        assert functions.polygamma(order, at) == pytest.approx(special.polygamma(order, at), rel=1e-12)


def test_student_s_tail_is_scipy_s():
    distances = np.array([0, 1e-3, 0.1, 1, 2, 5, 40, 1e6])
    found = functions.student_tail(FREEDOMS[:, np.newaxis], distances)
    assert found == pytest.approx(special.stdtr(FREEDOMS[:, np.newaxis], -distances), rel=1e-9)


@pytest.mark.parametrize("share", [0.75, 0.975, 0.9999])
def test_student_s_quantile_is_scipy_s(share):
    found = [functions.student_quantile(freedom, share) for freedom in FREEDOMS[1:]]
    assert found == pytest.approx(special.stdtrit(FREEDOMS[1:], share), rel=1e-9)


def test_the_normal_distribution_is_scipy_s():
    at = np.linspace(-9, 9, 37)
    assert functions.normal(at) == pytest.approx(special.ndtr(at), rel=1e-12)
