"""The heat map of `bench --hosts pairs:all`."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hvlab.report import collectives
from hvlab.report.data import Head, ReportData
from hvlab.results.configurations import Repeats
from tests.unit.reports import lab, report, said, table

HEAD = Head("r1", "lab", "2026-11-20T15:53:01.000Z", "finished", 1, 1, 0, 0)
HOSTS = ("n1", "n2", "n3", "n4")


def measured(chosen, slow):
    """A run of one collective on these pairs; what is slow takes three times as long."""
    usual = next(
        configuration
        for configuration in lab("lab7").collectives
        if len(configuration.hosts) == 2 and configuration.get("size_bytes") == 1048576
    )
    times = {
        replace(usual, hosts=pair): Repeats({"time": {1: 900.0 if pair in slow else 300.0}}, ok={1})
        for pair in chosen
    }
    return ReportData(HEAD, (), times, {})


def test_every_pair_is_a_cell_beside_the_median_pair():
    heat_map = table(report(measured(combinations(HOSTS, 2), {("n2", "n4")})), "pairs-1")
    head, *rows = said(heat_map, "en")
    assert head == ["host", *HOSTS]
    assert rows[1] == ["n2", "1.00×", "–", "1.00×", "3.00×"]
    assert rows[3] == ["n4", "1.00×", "3.00×", "1.00×", "–"]
    assert [kind for kind in heat_map.kinds() if "heat" in kind] == ["number heat-3"] * 2


def test_the_first_host_with_each_other_is_no_map():
    assert collectives.pairs(measured([("n1", "n2"), ("n1", "n3")], ())) == []
