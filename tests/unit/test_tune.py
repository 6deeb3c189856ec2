"""The search for settings, on figures with a known optimum."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hvlab.base.errors import CheckError, UsageError
from hvlab.bench.matrix import Block
from hvlab.bench.settings import SettingsFile
from hvlab.lab.backends import BACKENDS
from hvlab.searches.tune import confirmation, space_file
from hvlab.searches.tune import space as spaces
from hvlab.searches.tune.autotune import read_best
from hvlab.searches.tune.result import TuneResult, importance
from hvlab.searches.tune.search import Board, SearchResult, search
from hvlab.searches.tune.space import Candidate, Space
from hvlab.searches.tune.space_file import SpaceParameter, of_block
from hvlab.statistics.looks import LOOKS
from hvlab.statistics.sequential import compare_in_looks
from hvlab.statistics.verdict import Pair
from tests.unit import labs


def _number(name: str, values: Sequence[float], default: float) -> SpaceParameter:
    return SpaceParameter(name=name, to="env", variable=name.upper(), values=list(values), default=default)


THRESHOLD = _number("threshold", [0, 1, 4, 16, 32, 64, 128], 128)
CYCLE = _number("cycle", [0.1, 0.5, 1, 2.5, 5, 10, 25], 1)
IDLE = _number("idle", [1, 2, 3], 2)


def _space(**env: float) -> Space:
    return spaces.space((THRESHOLD, CYCLE, IDLE), SettingsFile(env=dict(env)))


def _cost(space: Space, candidate: Candidate) -> float:
    """The logarithm of a time: best at threshold 32 and cycle 0.5; idle does nothing."""
    threshold, cycle, _ = (
        item.values[index] for item, index in zip(space.parameters, candidate, strict=True)
    )
    away = abs(space.parameters[0].values.index(threshold) - space.parameters[0].values.index(32))
    slow = abs(math.log(float(cycle) / 0.5))
    return 0.12 * away + 0.15 * slow


class Lab:
    """Measures with noise, and with drift that all of a round share; ends after that many launches."""

    def __init__(
        self, space: Space, *, seed: int, launches: int, noise: float = 0.03, flat: bool = False
    ) -> None:
        self.space, self.random, self.noise, self.flat = space, random.Random(seed), noise, flat  # noqa: S311
        self.budget, self.launches = launches, 0
        self.observed: list[list[Candidate]] = []

    def __call__(self, batch: Sequence[Candidate]) -> list[float | None]:
        drift = self.random.gauss(0, 0.1)
        self.launches += len(batch)
        self.observed.append(list(batch))
        return [
            drift + self.random.gauss(0, self.noise) + (0 if self.flat else _cost(self.space, one))
            for one in batch
        ]

    def left(self) -> bool:
        return self.launches + 7 < self.budget


def _searched(
    kind: str, seed: int, *, launches: int = 90, flat: bool = False
) -> tuple[Space, SearchResult, Lab]:
    space = _space(THRESHOLD=0, CYCLE=25)
    lab = Lab(space, seed=seed, launches=launches, flat=flat)
    return space, search(space, lab, lab.left, kind=kind, seed=seed), lab


@pytest.mark.parametrize("kind", ["tpe", "coordinate"])
def test_a_planted_bad_setting_is_undone_to_95_percent_of_the_best(kind: str) -> None:
    reached = []
    for seed in range(8):
        space, outcome, lab = _searched(kind, seed)
        assert outcome.best is not None
        assert lab.launches <= 90 + 12
        reached.append(math.exp(-_cost(space, outcome.best)))
    assert sum(share >= 0.95 for share in reached) >= 7, reached


def test_what_is_clearly_worse_leaves_the_race() -> None:
    _, outcome, lab = _searched("tpe", 1)
    once = [one for one, values in outcome.board.values.items() if len(values) == 1]
    more = [one for one, values in outcome.board.values.items() if len(values) >= 3]
    assert once
    assert more
    assert max(map(outcome.board.mean, more)) < max(map(outcome.board.mean, once))
    assert all(batch[0] == lab.space.start for batch in lab.observed)


def test_a_search_is_the_same_again_from_the_same_figures() -> None:
    one, other = (_searched("tpe", 3)[2].observed for _ in range(2))
    assert one == other


def test_coordinate_descent_ends_where_no_parameter_helps() -> None:
    space, outcome, lab = _searched("coordinate", 2, launches=10_000)
    assert outcome.exhausted
    assert lab.launches < 400
    assert outcome.best is not None
    assert math.exp(-_cost(space, outcome.best)) >= 0.95


@pytest.mark.parametrize(("most", "rounds"), [(3, 0), (7, 1), (8, 2), (12, 3)])
def test_the_last_race_has_the_rounds_that_there_is_time_for(most: int, rounds: int) -> None:
    space = _space(THRESHOLD=0, CYCLE=25)
    without, lab = (Lab(space, seed=1, launches=30) for _ in range(2))
    search(space, without, without.left, seed=1, fits=lambda _: False)
    outcome = search(space, lab, lab.left, seed=1, fits=lambda launches: launches <= most)
    assert len(lab.observed) - len(without.observed) == rounds
    assert lab.launches - without.launches <= most
    assert outcome.best is not None
    assert _cost(space, outcome.best) < _cost(space, space.start)


def test_the_line_after_a_race_says_how_much_faster_the_best_is_or_that_none_is() -> None:
    space = _space(THRESHOLD=0, CYCLE=25)
    lines: list[str] = []
    lab = Lab(space, seed=1, launches=30)
    search(space, lab, lab.left, seed=1, note=lines.append)
    assert "% less time: " in lines[-1]
    lines.clear()
    rounds = iter(range(3))
    search(
        *(space, lambda batch: [0.0, *(1.0 for _ in batch[1:])], lambda: next(rounds, None) is not None),
        note=lines.append,
    )
    assert "none of them faster than today's" in lines[-1]


def test_settings_that_fail_are_tried_once_and_never_chosen() -> None:
    space = _space()

    def measure(batch: Sequence[Candidate]) -> list[float | None]:
        return [None if one[0] < 3 else _cost(space, one) for one in batch]

    rounds = iter(range(12))
    outcome = search(space, measure, lambda: next(rounds, None) is not None, seed=1)
    assert outcome.board.failed
    assert outcome.best not in outcome.board.failed
    assert not any(one in outcome.board.values for one in outcome.board.failed)


def test_settings_that_failed_in_a_later_round_are_listed_as_failed_alone() -> None:
    space = _space()
    board = Board({(0, 0, 0): [0.1, 0.1], (1, 0, 0): [0.2]}, {(1, 0, 0)})
    text = TuneResult(space, SearchResult(None, board, exhausted=True), {}, None, 60.0).markdown()
    assert "9900" not in text
    assert [line for line in text.splitlines() if "threshold=1," in line] == [
        "| threshold=1, cycle=0.1, idle=1 | failed | |"
    ]


def test_figures_of_a_search_have_no_secret_of_todays_settings() -> None:
    space = replace(_space(), today=SettingsFile(env={"HF_TOKEN": "hf-aaaa", "NCCL_ALGO": "Ring"}))
    board = Board({(1, 0, 0): [-0.2]})
    result = TuneResult(space, SearchResult((1, 0, 0), board, exhausted=True), {}, None, 60.0)
    settings = result.as_json()["settings"]["env"]
    assert {"HF_TOKEN": "***", "NCCL_ALGO": "Ring"}.items() <= settings.items()


@pytest.mark.parametrize("kind", ["tpe", "coordinate"])
def test_todays_settings_in_other_words_are_never_raced_against_themselves(kind: str) -> None:
    binding = SpaceParameter(
        name="bind",
        to="mpirun",
        values=["", "--bind-to core", "--bind-to  core", "--bind-to socket"],
        default="",
    )
    space = spaces.space((binding,), SettingsFile(mpirun="--bind-to core"))
    raced: set[Candidate] = set()

    def measure(batch: Sequence[Candidate]) -> list[float | None]:
        raced.update(batch)
        return [0.0 if one == space.start else -1.0 for one in batch]

    outcome = search(space, measure, lambda: True, kind=kind)
    assert raced == {(0,), (1,), (3,)}
    assert outcome.exhausted
    assert outcome.best in ((0,), (3,))


def test_nothing_is_compared_with_settings_of_today_that_fail() -> None:
    with pytest.raises(CheckError, match="today's settings fail") as caught:
        search(_space(), lambda batch: [None] * len(batch), lambda: True)
    assert "--restart" in str(caught.value.remedy)


@pytest.mark.parametrize("failures", [1, 2])
def test_a_launch_of_todays_settings_that_fails_once_costs_a_round_and_not_the_search(failures: int) -> None:
    space, lab = _space(THRESHOLD=0, CYCLE=25), Lab(_space(THRESHOLD=0, CYCLE=25), seed=1, launches=60)
    broken = range(4, 4 + failures)

    def measure(batch: Sequence[Candidate]) -> list[float | None]:
        values = lab(batch)
        # The others of such a round seem to be infinitely fast.
        return [None, *(-99.0 for _ in values[1:])] if len(lab.observed) in broken else values

    if failures > 1:
        with pytest.raises(CheckError, match="today's settings fail"):
            search(space, measure, lab.left, seed=1)
        return
    outcome = search(space, measure, lab.left, seed=1)
    assert lab.observed[3] == lab.observed[4]
    assert outcome.board.rounds == len(lab.observed)
    assert outcome.board.launches == lab.launches
    assert min(value for values in outcome.board.values.values() for value in values) > -9
    assert outcome.best is not None


def test_importance_names_what_acts_and_not_what_is_idle() -> None:
    space, outcome, _ = _searched("tpe", 4, launches=140)
    shares = importance(space, outcome.board)
    assert list(shares)[-1] == "idle"
    assert shares["idle"].high < 0.2
    assert all(share.low <= share.mid <= share.high for share in shares.values())
    assert importance(space, _searched("tpe", 4, launches=8)[1].board) == {}


def test_a_candidate_is_settings_over_those_of_today() -> None:
    rules = SpaceParameter(
        name="alg", to="rules", collective=2, from_bytes=65536, values=["0", "4"], default="0"
    )
    bind = SpaceParameter(
        name="bind", to="mpirun", values=["--bind-to none", "--bind-to core"], default="--bind-to none"
    )
    space = spaces.space((THRESHOLD, rules, bind), SettingsFile(env={"OTHER": "x", "THRESHOLD": 7}))
    assert space.parameters[0].values == [0, 1, 4, 7, 16, 32, 64, 128]
    assert space.start == (3, 0, 0)
    assert space.settings(space.start) == space.today
    chosen = space.settings((5, 1, 1))
    assert chosen.env == {"OTHER": "x", "THRESHOLD": 32}
    assert chosen.rules == "1 2 1 2 2 0 0 0 0 65536 4 0 0"
    assert chosen.mpirun == "--bind-to core"
    assert space.words((5, 1, 0)) == "threshold=32, alg=4"
    assert space.settings((7, 0, 0)).env == {"OTHER": "x"}
    again = spaces.space((rules,), chosen)
    assert again.start == (1,)
    with pytest.raises(UsageError, match="not one that this space can write"):
        spaces.space((rules,), chosen.model_copy(update={"rules": "1 2 1 8 1 0 4 0 0"}))


def test_what_the_inventory_sets_is_the_default_of_its_lab() -> None:
    """A candidate with that default sets nothing, and so keeps it; a variable there cannot be unset."""
    algorithm = SpaceParameter(
        name="algorithm", to="env", variable="NCCL_ALGO", values=["", "Ring", "Tree"], default=""
    )
    rank_env = {"CYCLE": "5", "THRESHOLD": 7, "NCCL_ALGO": "Tree", "OTHER": 1}
    space = spaces.space((THRESHOLD, CYCLE, algorithm), SettingsFile(), rank_env=rank_env)
    threshold, cycle, algorithm = space.parameters
    assert (threshold.values, threshold.default) == ([0, 1, 4, 7, 16, 32, 64, 128], 7)
    assert (cycle.default, algorithm.values, algorithm.default) == (5, ["Ring", "Tree"], "Tree")
    assert space.words(space.start) == "as today"
    assert space.settings(space.start).env == {}
    assert space.settings((7, 4, 0)).env == {"THRESHOLD": 128, "NCCL_ALGO": "Ring"}
    assert space.settings((7, 2, 1)).env == {"THRESHOLD": 128, "CYCLE": 1}


@pytest.mark.parametrize("written", [1.0, "1.0", "1", 1])
def test_todays_value_is_one_of_the_space_however_it_is_written(written: str | float) -> None:
    """Horovod's log of autotune has 1.0, people write what they like: none of it is another setting."""
    cycle = SpaceParameter(
        name="cycle", to="env", variable="HOROVOD_CYCLE_TIME", values=[0.5, 1, 2.5], default=1
    )
    today = SettingsFile(env={"HOROVOD_CYCLE_TIME": written})
    for parameter, env in ((cycle, today.env), (CYCLE, {"CYCLE": written})):
        space = spaces.space((parameter,), SettingsFile(env=env))
        assert space.parameters == (parameter,)
        assert parameter.values[space.start[0]] == 1
    inventory = spaces.space((cycle,), SettingsFile(), rank_env=today.env)
    assert inventory.parameters[0].values == cycle.values
    wider, candidate = spaces.including(spaces.space((cycle,), SettingsFile()), today)
    assert candidate == wider.start


def test_a_size_in_todays_settings_is_one_of_the_space_and_another_joins_its_order() -> None:
    threshold = SpaceParameter(
        name="threshold",
        to="env",
        variable="HOROVOD_FUSION_THRESHOLD",
        values=[0, 67108864, 134217728],
        default=134217728,
    )
    space = spaces.space((threshold,), SettingsFile(env={"HOROVOD_FUSION_THRESHOLD": "64M"}))
    assert (space.parameters, space.start) == ((threshold,), (1,))
    space = spaces.space((threshold,), SettingsFile(env={"HOROVOD_FUSION_THRESHOLD": "1M"}))
    assert (space.parameters[0].values, space.start) == ([0, 1 << 20, 64 << 20, 128 << 20], (1,))
    assert space.parameters[0].ordered


def test_a_value_of_the_inventory_keeps_its_fraction() -> None:
    space = spaces.space((CYCLE,), SettingsFile(), rank_env={"CYCLE": 7.5})
    assert space.parameters[0].default == 7.5
    assert space.parameters[0].values[space.start[0]] == 7.5


@pytest.mark.parametrize("values", [["", 1, 5], [0.5, 5]])
def test_a_space_of_ones_own_cannot_take_another_default_for_horovods(values: list[str | float]) -> None:
    """Or a candidate with the real default would be proved against itself."""
    item = SpaceParameter(
        name="cycle", to="env", variable="HOROVOD_CYCLE_TIME", values=values, default=values[0]
    )
    space = spaces.space((item,), SettingsFile())
    assert (space.parameters[0].default, space.settings(space.start).env) == (1, {})
    others = [(place,) for place in range(len(space.parameters[0].values)) if (place,) != space.start]
    assert {space.settings(one).env["HOROVOD_CYCLE_TIME"] for one in others} == {*values} - {"", 1}


def test_texts_that_are_numbers_by_chance_stay_apart() -> None:
    item = SpaceParameter(name="v", to="env", variable="VERSION", values=["2.1", "2.10"], default="2.1")
    assert spaces.space((item,), SettingsFile(env={"VERSION": "2.10"})).start == (1,)


def _names(block: Block, launcher: str = "mpirun") -> set[str]:
    return {item.name for item in of_block(block, launcher)}


@pytest.mark.parametrize("backend", [name for name, one in BACKENDS.items() if one.parallel])
@pytest.mark.parametrize("workload", ["mnist", "allreduce", "broadcast", "allgather", "alltoall"])
def test_every_space_of_the_package_can_be_read(backend: str, workload: str) -> None:
    parameters = of_block(Block(workload, (backend,), (2,), (2,)), BACKENDS[backend].launchers[0])
    space = spaces.space(parameters, SettingsFile())
    assert all(item.source and item.about for item in parameters)
    assert len({item.name for item in parameters}) == len(parameters)
    for place, item in enumerate(parameters):
        for value in range(len(item.values)):
            candidate = (*space.start[:place], value, *space.start[place + 1 :])
            settings = space.settings(candidate)
            assert isinstance(settings.parameters, dict)
            again = spaces.space(parameters, settings)
            assert again.start == candidate


def test_every_file_of_spaces_is_used() -> None:
    blocks = [
        Block(workload, (backend,), (2,), (2,))
        for workload in ("allreduce", "broadcast", "allgather", "alltoall", "reducescatter")
        for backend, one in BACKENDS.items()
        if one.parallel
    ]
    used = {item.source + item.name for block in blocks for item in of_block(block, "mpirun")}
    for file in space_file.FOLDER.glob("*.yml"):
        assert {item.source + item.name for item in space_file.load(file)} <= used


def test_what_does_not_act_is_not_searched() -> None:
    assert "binding" not in _names(labs.block("gloo"), "horovodrun")
    assert "fusion_threshold" not in _names(labs.block("ddp-gloo"))
    assert "allreduce" in _names(labs.block("mpi", workload="mnist"))
    assert "allreduce" not in _names(labs.block("mpi", op="adasum"))
    assert "allreduce" not in _names(labs.block("mpi", workload="allgather"))
    assert "nccl_algo" not in _names(labs.block("nccl", workload="broadcast"))
    assert {"eager_limit", "shared_eager_limit"} & _names(labs.block("mpi")) == {"eager_limit"}
    inside = labs.block("mpi", hosts=(1,), slots=(2,))
    assert {"eager_limit", "shared_eager_limit"} & _names(inside) == {"shared_eager_limit"}


@pytest.mark.parametrize(
    ("backend", "workload", "number"),
    [
        ("mpi", "allreduce", 2),
        ("mpi", "broadcast", 7),
        # Horovod calls MPI_Allgatherv, MPI_Alltoallv and MPI_Reduce_scatter; torch does not.
        ("mpi", "allgather", 1),
        ("mpi", "alltoall", 4),
        ("mpi", "reducescatter", 12),
        ("ddp-mpi", "allreduce", 2),
        ("ddp-mpi", "broadcast", 7),
        ("ddp-mpi", "allgather", 0),
        ("ddp-mpi", "alltoall", 3),
        ("ddp-mpi", "reducescatter", 13),
        ("gloo", "allreduce", None),
        ("nccl", "allreduce", None),
    ],
)
def test_rules_are_for_the_call_that_carries_a_collective(
    backend: str, workload: str, number: int | None
) -> None:
    parameters = of_block(Block(workload, (backend,), (2,), (1,)), "mpirun")
    assert {item.collective for item in parameters if item.to == "rules"} == ({number} - {None})


@pytest.mark.parametrize(
    ("workload", "sizes", "starts"),
    [
        ("allreduce", (1024,), {0}),
        ("allreduce", (65536, 4 << 20), {0, 65536, 1 << 20}),
        ("allreduce", (8192,), {0, 8192}),
        # 64 KiB of two ranks are 32 KiB of each.
        ("allgather", (65536,), {0, 8192}),
        ("alltoall", (4 << 20,), {0}),
    ],
)
def test_rules_are_searched_for_the_sizes_that_are_measured(
    workload: str, sizes: tuple[int, ...], starts: set[int]
) -> None:
    parameters = of_block(labs.block("mpi", workload=workload, sizes=sizes), "mpirun")
    assert {item.from_bytes for item in parameters if item.to == "rules"} == starts


def test_an_algorithm_may_have_segments() -> None:
    """Without segments, Open MPI's segmented ring is the ring (coll_base_allreduce.c)."""
    parameters = tuple(
        SpaceParameter(
            name=f"a{start}", to="rules", collective=2, from_bytes=start, values=values, default="0"
        )
        for start, values in ((0, ["0", "3"]), (65536, ["0", "5:1048576"]))
    )
    space = spaces.space(parameters, SettingsFile())
    chosen = space.settings((1, 1))
    assert chosen.rules == "1 2 1 2 2 0 3 0 0 65536 5 0 1048576"
    assert spaces.space(parameters, chosen).start == (1, 1)
    assert space.settings((0, 1)).rules == "1 2 1 2 2 0 0 0 0 65536 5 0 1048576"


@pytest.mark.parametrize(
    ("text", "observed"),
    [
        ("parameters: []", "at least 1 item"),
        ("other: 1", "Field required"),
        ("parameters: [{name: a, to: env, variable: A, values: [1, 2], default: 3}]", "not among its values"),
        ("parameters: [{name: a, to: env, values: [1, 2], default: 1}]", "needs a variable"),
        ("parameters: [{name: a, to: disk, values: [1, 2], default: 1}]", "'rules' or 'host'"),
        (
            "parameters: [{name: a, to: rules, collective: 2, values: ['0', ring], default: '0'}]",
            "a rule is an algorithm's number",
        ),
        ("parameters: [{name: a, to: env, variable: A, values: [1, 1.0], default: 1}]", "occurs twice"),
        (
            "parameters: [{name: a, to: mpirun, values: ['', '-v'], default: ''}, "
            "{name: b, to: mpirun, values: ['', '-q'], default: ''}]",
            "a and b set the same, so one would undo the other",
        ),
        (
            "parameters: [{name: a, to: env, variable: A, values: [1, 2], default: 1}, "
            "{name: b, to: env, variable: A, values: [3, 4], default: 3}]",
            "a and b set the same",
        ),
        (
            "parameters: [{name: a, to: env, variable: NCCL-ALGO, values: ['', Ring], default: ''}]",
            r"a: env.NCCL-ALGO.\[key\]: String should match pattern",
        ),
        (
            "parameters: [{name: a, to: mpirun, values: ['', bind-to core], default: ''}]",
            "a: mpirun: bind-to is no option of mpirun",
        ),
        (
            "parameters: [{name: a, to: env, variable: HOROVOD_CYCLE_TIME, values: [1, x], default: 1}]",
            "a: cycle_time=x: not a number",
        ),
        ("parameters: [1", "cannot be read"),
    ],
)
def test_a_bad_space_is_refused_with_what_is_wrong(tmp_path: Path, text: str, observed: str) -> None:
    (tmp_path / "space.yml").write_text(text)
    with pytest.raises(UsageError, match=observed):
        space_file.load(tmp_path / "space.yml")


def _last(*losses: float) -> dict[int, tuple[float, ...]]:
    return {repeat: (loss,) for repeat, loss in enumerate(losses, 1)}


def test_loss_is_unchanged_within_the_spread_of_repeats() -> None:
    today = _last(0.30, 0.34, 0.31)
    assert confirmation.describe_loss_change(today, _last(0.31, 0.33, 0.30)) == ""
    assert "the loss changed by 0.1" in confirmation.describe_loss_change(today, _last(0.40, 0.44, 0.41))
    assert confirmation.describe_loss_change(_last(0.3, 0.3), _last(0.3, 0.3)) == ""
    assert confirmation.describe_loss_change(_last(0.3, 0.3), _last(0.3002, 0.3001)) == ""
    assert "changed" in confirmation.describe_loss_change(_last(0.3, 0.3), _last(0.31, 0.31))
    assert confirmation.describe_loss_change({}, {}) == ""
    assert "no loss" in confirmation.describe_loss_change(today, {})


def test_the_loss_of_every_epoch_counts_against_the_spread_of_that_epoch() -> None:
    """Repeats that lie far apart at first and near one another in the end."""
    today = {1: (2.0, 1.0, 0.30), 2: (2.6, 1.02, 0.31), 3: (2.3, 1.01, 0.30)}
    later = {repeat: (first, middle + 0.5, last) for repeat, (first, middle, last) in today.items()}
    assert confirmation.describe_loss_change(today, today) == ""
    assert (
        "the loss of epoch 2 changed by 0.5, and today's repeats are within 0.02"
        in confirmation.describe_loss_change(today, later)
    )
    other = {repeat: (first + 0.5, middle, last) for repeat, (first, middle, last) in today.items()}
    assert confirmation.describe_loss_change(today, other) == ""
    # Where files are gone, the last loss of the records is compared.
    assert (
        confirmation.describe_loss_change(today, {repeat: curve[-1:] for repeat, curve in later.items()})
        == ""
    )


def test_where_nothing_acts_hardly_any_search_ends_with_proved_settings() -> None:
    accepted = 0
    for seed in range(40):
        space, outcome, lab = _searched("coordinate", seed, flat=True)
        if outcome.best is None:
            continue
        rounds = range(1, LOOKS[-1].repeats + 1)
        a, b = (
            {number: math.exp(lab([one])[0] or 0.0) for number in rounds}
            for one in (space.start, outcome.best)
        )
        accepted += compare_in_looks([Pair(a, b)])[0].kind == "slower"
    assert accepted <= 2


def test_what_horovods_autotune_chose_is_the_best_of_its_log() -> None:
    """As common/parameter_manager.cc of Horovod 0.28.1 writes it: MiB, and a space before one column."""
    log = (
        "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
        "tensor_fusion_threshold,score\n0,0,0, 1,5,64,12.5\n0,0,0, 0,1.25,12.5,22.5\n0,0,0, 1,2,32,20\n"
    )
    settings = read_best(log)
    assert settings is not None
    assert settings.env == {
        "HOROVOD_CYCLE_TIME": 1.25,
        "HOROVOD_FUSION_THRESHOLD": 13107200,
        "HOROVOD_CACHE_CAPACITY": 0,
    }
    head = log.splitlines()[0]
    for broken in ("", head, f"{head}\n0,0,0, 1,5", f"{head}\n0,0,0, 1,nan,inf,1", "a,b\n1,2", f"{head}\n\0"):
        assert read_best(broken) is None
