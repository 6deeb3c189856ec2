"""YAML files of people: a key counts once, and merged keys are no second ones."""

import pytest
import yaml

from hvlab.base.yaml_files import read_yaml


@pytest.mark.parametrize(
    ("text", "observed"),
    [
        ("repeats: 3\nabout: x\nrepeats: 5\n", "'repeats' stands twice"),
        ("env: {A: 1, B: 2, A: 3}\n", "'A' stands twice"),
        ("<<: {a: 1}\n<<: {b: 2}\n", "'<<' stands twice"),
    ],
)
def test_a_key_that_stands_twice_is_refused_with_its_place(text, observed, tmp_path):
    (tmp_path / "a.yml").write_text(text)
    with pytest.raises(ValueError, match=observed) as caught:
        read_yaml(tmp_path / "a.yml")
    assert "line" in str(caught.value)


def test_a_merged_key_may_be_overridden(tmp_path):
    text = "x: &x {a: 1, b: 1}\ny: &y {<<: *x, a: 2}\nz: {<<: *y, b: 3}\nall: [*x, *y, *y]\n1: 2\n'1': 3\n"
    (tmp_path / "a.yml").write_text(text)
    assert read_yaml(tmp_path / "a.yml") == yaml.safe_load(text)
