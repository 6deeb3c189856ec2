"""The gauges and the rules, as Prometheus' own promtool of Debian's package judges them."""

import subprocess
from pathlib import Path

import pytest

from hvlab.checks.judge import HealthCheck, as_gauges, speeds_as_gauges
from hvlab.cli import textfile
from tests.contract.tree import ROOT

pytestmark = pytest.mark.pipx

RULES = ROOT / "templates/monitoring/alerts.yml"
SERIES = f"""
rule_files: [{RULES}]
evaluation_interval: 1h
tests:
  - interval: 1h
    input_series:
      - {{series: 'hvlab_hard_fault{{host="n1", check="gpu count"}}', values: '0 1 1'}}
      - {{series: 'hvlab_hard_fault{{host="n2", check="gpu count"}}', values: '0 0 0'}}
      - {{series: 'hvlab_ended_seconds{{verb="health", lab="lab"}}', values: '0x60'}}
    alert_rule_test:
      - {{eval_time: 0h, alertname: HvlabHostUnfit, exp_alerts: []}}
      - eval_time: 2h
        alertname: HvlabHostUnfit
        exp_alerts:
          - exp_labels: {{severity: critical, host: n1, check: gpu count}}
            exp_annotations:
              summary: "n1 is unfit for work: gpu count"
              description: "`hvlab health -l n1` says what was seen and what to do."
      - {{eval_time: 47h, alertname: HvlabStale, exp_alerts: []}}
      - eval_time: 50h
        alertname: HvlabStale
        exp_alerts:
          - exp_labels: {{severity: warning, verb: health, lab: lab}}
            exp_annotations:
              summary: "hvlab health has not ended on lab for two days"
              description: "Look at the timer or cron job that starts it."
"""


@pytest.fixture(scope="module")
def promtool(tmp_path_factory):
    """The program alone, from the package: installing it would start a service."""
    folder = tmp_path_factory.mktemp("prometheus")
    subprocess.run(["apt-get", "download", "-q", "prometheus"], cwd=folder, check=True, capture_output=True)
    (package,) = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    return folder / "usr/bin/promtool"


def run(promtool: Path, *words: object, text: str = "") -> None:
    done = subprocess.run(
        [promtool, *map(str, words)], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_gauges_of_health_are_sound(promtool, tmp_path):
    words = {"observed": "", "remedy": ""}
    checks = [
        HealthCheck(host="n1", check="gpu count", outcome="failed", severity="hard", **words),
        HealthCheck(host="n1", check="clock offset", outcome="passed", **words),
        HealthCheck(host="n2", check="host answers", outcome="unreachable", **words),
    ]
    speeds = speeds_as_gauges({"n1": {"burn": {"devices": {"GPU 0": {"rates": {"bf16": [700.0]}}}}}})
    textfile.write(tmp_path, "health", "lab", {**as_gauges(checks), **speeds})
    text = (tmp_path / "hvlab_health.prom").read_text()
    assert 'hvlab_hard_fault{check="gpu count",host="n1"} 1.0' in text
    assert 'hvlab_hard_fault{check="clock offset",host="n1"} 0.0' in text
    assert 'hvlab_no_answer{host="n2"} 1.0' in text
    assert 'hvlab_burn_flop_per_second{device="GPU 0",host="n1",kind="bf16"} 7e+14' in text
    run(promtool, "check", "metrics", text=text)


def test_the_rules_raise_their_alarms(promtool, tmp_path):
    run(promtool, "check", "rules", RULES)
    (tmp_path / "test.yml").write_text(SERIES)
    run(promtool, "test", "rules", tmp_path / "test.yml")
