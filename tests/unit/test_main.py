"""What `python -m hvlab` makes of its surroundings, before anything else."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from hvlab.__main__ import EXTRAS
from tests.contract.tree import ROOT
from tests.unit.test_installed import FACTS

SHOW = "import os; print(os.environ.get('LC_ALL'))"
CALL = "import subprocess, sys; from hvlab import __main__; __main__._speak_english(); "
CALL += f"sys.exit(subprocess.run([sys.executable, '-c', {SHOW!r}]).returncode)"
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))}


@pytest.mark.parametrize(
    "given", [{"LC_ALL": "C"}, {"LC_ALL": "xx_YY.UTF-8"}, {"LANG": "de_DE.UTF-8"}, {}], ids=str
)
def test_what_is_started_speaks_english_in_utf8(given):
    done = subprocess.run(
        [sys.executable, "-c", CALL], env=PLAIN | given, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "C.UTF-8"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_no_harm(closed, tmp_path):
    command = f"exec {sys.executable} -m hvlab results list --results {tmp_path}/results {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


WITHOUT = f"""import sys
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {sorted({*EXTRAS, "scipy"} - {"pip"})}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""


# Each command as python -m hvlab runs it, in one process.
EACH = """import runpy, sys
for words in sys.argv[1:]:
    sys.argv = ["hvlab", *words.split()]
    try:
        runpy.run_module("hvlab", run_name="__main__")
    except SystemExit as end:
        print("", words, end.code, sep="\\t", file=sys.stderr)
"""


@pytest.fixture
def base(tmp_path):
    """hvlab without any extra: what runs its commands, and returns the exit status and errors of each."""
    (tmp_path / "usercustomize.py").write_text("")
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    (tmp_path / "facts.json").write_text(json.dumps({"n1": FACTS}))
    (tmp_path / "slow.log").write_text("all went well\n")
    shutil.copytree(ROOT / "tests/data/recorded-store", tmp_path / "results")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])

    def run(*commands):
        argv = [sys.executable, "-c", EACH, *commands]
        environment = os.environ | {"PYTHONPATH": path}
        done = subprocess.run(
            argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr
        ends = re.findall(r"(?s)(.*?)\t(.*?)\t(\d+)\n", done.stderr)
        assert [words for _, words, _ in ends] == list(commands), done.stderr
        return [(int(status), errors) for errors, _, status in ends]

    return run


def test_plans_logs_results_and_reports_need_no_extra(base):
    ended = base(
        "plan --facts facts.json --explain",
        "doctor --log slow.log",
        "results list",
        "results show",
        "report --output report.html",
        "report --history time --output history.html",
        "compare 20261120T155301Z-ab12 20261121T155301Z-cd34",
        "baseline check --help",
    )
    assert [status for status, _ in ended] == [0] * 8, ended


MISSING = {
    "report --output report.md": "pictures",
    "init mylab n1": "hosts",
    f"plan -i {ROOT}/inventory/lab --facts facts.json": "hosts",
    f"bench -i {ROOT}/inventory/lab --suite quick --dry-run": "hosts",
}


def test_a_command_whose_extra_is_missing_names_it(base):
    for (status, errors), extra in zip(base(*MISSING), MISSING.values(), strict=True):
        assert (status, f"pip install 'hvlab[{extra}]'" in errors) == (2, True), errors


def test_a_missing_package_of_the_base_is_no_extra():
    code = "from hvlab.__main__ import missing_extra; print(missing_extra('rich'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install --force-reinstall hvlab" in done.stdout
