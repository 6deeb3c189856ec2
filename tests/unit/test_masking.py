"""What environment variables hold that nobody else is to read."""

import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvlab.base.masking import hides, is_masked, mask, mask_argv
from hvlab.results import outcomes
from hvlab.workloads import Outcome
from tests.unit import labs


@pytest.mark.parametrize(
    "name",
    [
        *("TOKEN", "HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "MY_PRIVATE_KEY_2", "DB_PASSWORD"),
        *("GOOGLE_APPLICATION_CREDENTIALS", "SECRET_NAME", "HUGGING_FACE_HUB_TOKEN"),
    ],
)
def test_what_is_secret(name):
    assert hides(name)
    assert mask({"env": {name: "x"}}) == {"env": {name: "***"}}
    assert is_masked({"env": {name: "***"}})


@pytest.mark.parametrize(
    "name",
    [
        *("NCCL_ALGO", "HOROVOD_CYCLE_TIME", "OMPI_MCA_btl", "MAX_TOKENS", "TOKENIZERS_PARALLELISM", "KEY"),
        *("CACHE_KEY", "SECRETARY", "PASSWORDLESS", "hf_token"),
    ],
)
def test_what_is_not(name):
    assert not hides(name)
    assert mask(f"{name}=x") == f"{name}=x"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("NCCL_ALGO=Ring HF_TOKEN=abc", "NCCL_ALGO=Ring HF_TOKEN=***"),
        ("HF_TOKEN=a=b,c NCCL_ALGO=Ring", "HF_TOKEN=*** NCCL_ALGO=Ring"),
        ("'HF_TOKEN=a b' X=1", "'HF_TOKEN=***' X=1"),
        ("HF_TOKEN='a b' X=1", "HF_TOKEN=*** X=1"),
        ('HF_TOKEN="a \\" b" X=1', "HF_TOKEN=*** X=1"),
        ("env=HF_TOKEN=abc", "env=HF_TOKEN=***"),
        ("--env=HF_TOKEN=abc -x NCCL_ALGO=Ring", "--env=HF_TOKEN=*** -x NCCL_ALGO=Ring"),
        ("cd x && HF_TOKEN=abc python t.py | tee log", "cd x && HF_TOKEN=*** python t.py | tee log"),
        ("HF_TOKEN=", "HF_TOKEN="),
        ("'HF_TOKEN=' X=1", "'HF_TOKEN=' X=1"),
        ("'env=HF_TOKEN=a b' X=1", "'env=HF_TOKEN=***' X=1"),
        ("sh -c 'export HF_TOKEN=a; python t.py'", "sh -c 'export HF_TOKEN=***'"),
        ('"HF_TOKEN=a \\" b" X=1', '"HF_TOKEN=***" X=1'),
        ("X=1 HF_TOKEN='a b", "X=1 HF_TOKEN=***"),
        ("it doesn't matter HF_TOKEN=a b", "it doesn't matter HF_TOKEN=*** b"),
        ("the TOKEN = 3", "the TOKEN = 3"),
        ("HF_TOKEN+=abc X=1", "HF_TOKEN+=*** X=1"),
        ("docker run -eHF_TOKEN=abc image", "docker run -eHF_TOKEN=*** image"),
        ("HF_TOKEN=$(cat a b) X=1", "HF_TOKEN=*** X=1"),
        ("HF_TOKEN=$(cat $(ls a) b) X=1", "HF_TOKEN=*** X=1"),
        ("HF_TOKEN=`cat a b` X=1", "HF_TOKEN=*** X=1"),
        ("PGPASSWORD=a SSHPASS=b KEY_PASSPHRASE=c", "PGPASSWORD=*** SSHPASS=*** KEY_PASSPHRASE=***"),
        ("MY_TOKENS=a MY_SECRETS=b GH_PAT=c PATH=d", "MY_TOKENS=*** MY_SECRETS=*** GH_PAT=*** PATH=d"),
    ],
)
def test_assignments_in_a_text(text, shown):
    assert mask(text) == shown
    assert mask(shown) == shown
    assert is_masked(shown) is ("***" in shown)


@given(st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=4))
def test_no_value_is_left_of_what_a_shell_would_read(value):
    secret = f"s3cr3t{value}s3cr3t"
    line = shlex.join(["env", "A=1", f"HF_TOKEN={secret}", "B=2", "python", "t.py"])
    assert shlex.split(mask(line)) == ["env", "A=1", "HF_TOKEN=***", "B=2", "python", "t.py"]


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("HF_TOKEN=a b", "HF_TOKEN=***"),
        ("--env=HF_TOKEN=a b", "--env=HF_TOKEN=***"),
        ("-eHF_TOKEN=a b", "-eHF_TOKEN=***"),
        ("HF_TOKEN=", "HF_TOKEN="),
        ("cd x && HF_TOKEN=a python t.py", "cd x && HF_TOKEN=*** python t.py"),
        ("NCCL_ALGO=a b", "NCCL_ALGO=a b"),
    ],
)
def test_an_argument_is_hidden_as_a_whole(word, shown):
    assert mask_argv(["mpirun", "-x", word]) == ("mpirun", "-x", shown)


@pytest.mark.parametrize(
    "text",
    [
        "a=" * 20_000 + "HF_TOKEN=x " + "'" * 3 + "TOKEN=x " * 20_000,
        "HF_TOKEN='a x' \"=x\" " * 20_000,
        # What failed may say anything.
        "TOKEN_" * 200_000,
    ],
)
def test_a_long_text_takes_no_time(text):
    begun = time.process_time()
    shown = mask(text)
    assert time.process_time() - begun < 60
    assert not [value for value in ("TOKEN=x", "a x") if value in shown]


def test_what_json_holds():
    spec = {"axes": {"env": ("HF_TOKEN=abc",)}, "sides": {"A": {"env": "X=1 HF_TOKEN=abc"}}, "n": [1, None]}
    assert mask(spec) == {
        "axes": {"env": ("HF_TOKEN=***",)}, "sides": {"A": {"env": "X=1 HF_TOKEN=***"}}, "n": [1, None],
    }  # fmt: skip
    assert not is_masked(spec)
    assert is_masked(mask(spec))


def test_a_record_says_why_a_case_failed_without_the_secret():
    """A program that is no shell takes the assignment before a command for the command."""
    failed = Outcome(0.0, error="HF_TOKEN=hf-aaaa: No such file or directory")
    (record,) = outcomes.records("r1", labs.case(), failed, {})
    assert record.error == "HF_TOKEN=*** No such file or directory"
