"""The report printed by the browser that is here."""

import re

from hvlab.cli import run
from tests.unit import runs


def test_a_pdf_has_pages(tmp_path):
    runs.store(tmp_path / "results", runs.lab4())
    output = tmp_path / "report.pdf"
    where = ["--results", str(tmp_path / "results"), "--output", str(output)]
    assert run(["report", "--lang", "zh", *where]) == 0
    content = output.read_bytes()
    assert content.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", content)) > 4
