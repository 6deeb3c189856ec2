"""`hvlab clean --on-hosts`: what is old and unused goes from the virtual hosts, and what is in use stays."""

import json

import pytest

pytestmark = pytest.mark.site

OLD = "/opt/hvlab/openmpi/0.0.1"
BUILD = "/var/cache/hvlab/build/openmpi-0123456789abcdef"
RUNS = "/home/hvlab/.hvlab/runs"
PLANT = f"""set -e
mkdir -p {OLD}/lib {BUILD}/src
runuser -u hvlab -- mkdir -p {RUNS}/r-idle/case {RUNS}/r-busy/case
head -c 1000000 /dev/zero > {OLD}/lib/libmpi.so
echo '{{"key": "old"}}' > {OLD}/.hvlab-pack.json
find {OLD} {BUILD} {RUNS}/r-* /opt/hvlab/openmpi/current -exec touch -h -d '40 days ago' {{}} +
"""
# In use: packs, links, and the programs.
HELD = f"find /opt/hvlab -maxdepth 2 ! -path {OLD} ! -name '.*' -printf '%p %l\\n' | sort"


@pytest.fixture(scope="module")
def planted(lab):
    """What is in use on t2, with old things beside it, one of which a process works in."""
    held = lab.on("t2", HELD)
    lab.on("t2", PLANT)
    lab.on("t2", f"systemd-run --unit=hvlab-busy --property=WorkingDirectory={RUNS}/r-busy/case sleep 600")
    yield held
    lab.on("t2", f"systemctl stop hvlab-busy; rm -rf {OLD} {BUILD} {RUNS}/r-idle {RUNS}/r-busy")


def listed(lab, *words):
    rows = json.loads(lab.hvlab("clean", "--on-hosts", "--format", "json", *words).stdout)
    return {(row["host"], row["paths"][0]): row for row in rows}


def test_old_things_are_shown_and_nothing_goes_unasked(lab, planted):
    rows = listed(lab)
    going = {place for place, row in rows.items() if row["goes"]}
    assert going == {("t2", OLD), ("t2", BUILD), ("t2", f"{RUNS}/r-idle")}
    assert rows["t2", f"{RUNS}/r-busy"]["in_use"]
    assert rows["t2", OLD]["bytes"] >= 1_000_000
    assert lab.on("t2", f"ls -d {OLD} {BUILD}").split() == [OLD, BUILD]


def test_what_is_in_use_stays(lab, planted):
    listed(lab, "--yes")
    assert lab.on("t2", f"ls -d {OLD} {BUILD} {RUNS}/r-idle 2>/dev/null || true") == ""
    assert lab.on("t2", f"ls {RUNS}/r-busy").split() == ["case"]
    assert lab.on("t2", HELD) == planted
    assert "Open MPI" in lab.on("t2", "/opt/hvlab/openmpi/current/bin/mpirun --version")
    assert lab.site("--tags", "openmpi")["t2"] == 0
