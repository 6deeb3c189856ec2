"""What `hvlab doctor --prove` chooses and refuses; tests/vlab/test_9_prove.py runs the proofs."""

import pytest

from hvlab.base.errors import CheckError, UsageError
from hvlab.cli import doctor_prove
from hvlab.doctor import knowledge
from hvlab.doctor.proofs import OF_CAUSE, PROOFS, CauseProof

PROOF = CauseProof("host-key", "p1", "break", ("bench",), ("keys", "issue"))


def test_proofs_are_of_causes_that_are_known():
    assert set(OF_CAUSE) <= {cause.id for cause in knowledge.CAUSES}
    assert all(bool(proof.remedy) != bool(proof.by_hand) for proof in PROOFS)


@pytest.mark.parametrize("causes", [[], ["no-gpu"]])
def test_what_virtual_hosts_cannot_show_is_refused_with_what_they_can(causes):
    with pytest.raises(UsageError) as caught:
        doctor_prove.prove(causes)
    assert "host-key" in caught.value.remedy


class Lab:
    """A lab whose command shows one set of causes after another."""

    def __init__(self, *shows):
        self.shows, self.done = list(shows), []

    def causes(self, proof):
        return self.shows.pop(0)

    def root(self, host, line):
        self.done.append((host, line))

    def hvlab(self, words, *, check):
        self.done.append(words)


def test_the_steps_in_order():
    lab = Lab({}, {"host-key": "Host key verification failed."}, {})
    doctor_prove.show(lab, PROOF)
    assert lab.done == [("p1", "break"), ("keys", "issue")]


@pytest.mark.parametrize(
    ("shows", "problem"),
    [
        ([{"clock": "off"}], "fails before anything was put in: clock: off"),
        ([{}, {"disk-full": "x"}], "does not show host-key though it was put in"),
        ([{}, {"host-key": "x"}, {"host-key": "x"}], "still fails after the remedy: host-key: x"),
    ],
)
def test_what_is_not_shown_or_stays_is_no_proof(shows, problem):
    with pytest.raises(CheckError, match=problem):
        doctor_prove.show(Lab(*shows), PROOF)
