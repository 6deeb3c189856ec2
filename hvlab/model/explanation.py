"""What figures say, as a key with its numbers: a report makes words of it in any language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Each key with its English words. Numbers are SI unless their name ends in a unit; shares are of 1.
WORDS: Mapping[str, str] = {
    # Why there is no fit.
    "nothing_measured": "no case of this sweep has figures ({failed:.0f} failed)",
    "one_rank": "only one rank was measured: nothing was sent",
    "one_size": "only one size was measured: latency and bandwidth cannot be told apart",
    "few_points": "only {points:.0f} points were measured, a fit needs {needed:.0f}",
    # What a fit cannot say.
    "few_hosts": "{ranks:.0f} hosts only",
    "few_ranks": "{ranks:.0f} ranks only",
    "narrow_sizes": "the sizes span a factor of {factor:.0f} only",
    "no_alpha": "the latency of a message is too small beside the start of an operation to be seen",
    "no_beta": "the sizes are too small to show the bandwidth",
    "start_or_latency": "one number of ranks: the start of an operation and latency cannot be told apart",
    "algorithm_unsure": "{algorithm} fits best, but in only {share:.0%} of the draws",
    "not_checked": "too few points to leave any out: the fit is not checked",
    "poor_fit": "the model misses half of the points by more than {error:.0%}",
    "poor_check": "the largest case, left out, was missed by {error:.0%}",
    "virtual": "virtual hosts share their machine's cores",
    # Why there is no prediction.
    "no_base": "no step at one rank was measured",
    "no_bytes": "how many bytes a step sends is not known",
    "no_fit": "there is no fit of {backend}'s allreduce in this topology",
    # What a prediction cannot say.
    "hidden_unknown": "no step at several ranks was measured: that nothing is hidden is assumed",
    "check_seen": "the allreduce behind it was fitted at the same number of ranks",
    "hidden_borrowed": "how much is hidden was measured with {scaling} scaling",
    "overhead": "a step at several ranks takes {overhead_ms:.3g} ms more than compute and allreduce explain",
    "beyond_size": "a step sends {factor:.1f} times the largest size measured",
    "serial_base": "the step at one rank is that of the program without Horovod",
    "batch_limit": "a global batch of {batch:.0f} samples cannot be shared among more ranks",
    # Which term dominates a collective: shares start, latency, bandwidth.
    "collective.start": "{start:.0%} of {seconds_ms:.3g} ms is the start of the operation",
    "collective.latency": "{latency:.0%} of {seconds_ms:.3g} ms is latency",
    "collective.bandwidth": "{bandwidth:.0%} of {seconds_ms:.3g} ms is bandwidth",
    # Which term dominates a training step: shares compute, waiting, start, latency, bandwidth,
    # communication (where no fit shares it out), other.
    "step.compute": "{compute:.0%} of a step is compute",
    "step.waiting": "{waiting:.0%} of a step is waiting for the slowest host",
    "step.start": "{start:.0%} of a step is the start of operations",
    "step.latency": "{latency:.0%} of a step is latency",
    "step.bandwidth": "{bandwidth:.0%} of a step is bandwidth",
    "step.communication": "{communication:.0%} of a step is communication",
    "step.other": "{other:.0%} of a step is explained neither by compute nor by the allreduce",
    # A whole run: start-up against training.
    "startup.dominates": "start-up takes {share:.0%} of the run: longer than training",
    "startup.matters": "start-up takes {share:.0%} of the run",
    "startup.small": "start-up takes only {share:.1%} of the run",
    # Two backends; ratios are slower/faster of time, so above 1.
    "faster.both": "{faster} starts {fixed_ratio:.2f} and moves bytes {bandwidth_ratio:.2f} times as fast",
    "faster.latency": "{faster} starts {fixed_ratio:.2f} times as fast, bytes move alike",
    "faster.bandwidth": "{faster} moves bytes {bandwidth_ratio:.2f} times as fast, operations start alike",
    "faster.crossing": "{faster} starts {fixed_ratio:.2f} times as fast as {slower}, which moves bytes "
    "{bandwidth_ratio:.2f} times as fast and is ahead from {crossing_bytes:.3g} bytes on",
    "faster.alike": "{faster} and {slower} cannot be told apart",
    # Compute to communication.
    "ratio.model": "{flop_per_byte:.3g} FLOP for each byte sent: efficiency {efficiency:.0%} "
    "at {ranks:.0f} ranks",
    "ratio.agrees": "in {agreeing:.0f} of {pairs:.0f} pairs the model with more FLOP per byte scales better",
    "ratio.disagrees": "in only {agreeing:.0f} of {pairs:.0f} pairs the model with more FLOP per byte "
    "scales better",
}


@dataclass(frozen=True)
class Explanation:
    """One statement: ``key`` is one of WORDS, ``names`` what it is about, ``numbers`` what it rests on."""

    key: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return the statement in English."""
        return WORDS[self.key].format(**self.numbers, **self.names)
