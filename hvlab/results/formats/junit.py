"""JUnit XML for Jenkins and similar tools. Pure."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from typing import Any

from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

# Characters that XML 1.0 cannot hold.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def case(
    name: str,
    classname: str,
    *,
    seconds: float | None = None,
    failure: str | None = None,
    skipped: str | None = None,
    output: str | None = None,
) -> TestCase:
    """Return a test. ``seconds`` is None if unknown; ``failure`` and ``skipped`` are the reasons."""
    test = TestCase(_text(name), _text(classname), None if seconds is None else round(seconds, 3))
    results: list[Any] = []
    for kind, result, reason in (("failed", Failure, failure), ("skipped", Skipped, skipped)):
        if reason is not None:
            results.append(result(_text(reason.strip().partition("\n")[0]), kind))
            results[-1].text = _text(reason)
    test.result = results
    if output:
        test.system_out = _text(output)
    return test


def suite(
    name: str,
    tests: Iterable[TestCase],
    *,
    timestamp: str | None = None,
    properties: Mapping[str, object] | None = None,
) -> TestSuite:
    """Return a suite of tests; ``timestamp`` is UTC, ISO 8601."""
    made = TestSuite(_text(name))
    # Without a zone and without fractions, as xs:dateTime of the schema has it.
    if timestamp:
        made.timestamp = timestamp[:19]
    for key, value in (properties or {}).items():
        made.add_property(_text(key), _text(value))
    made.add_testcases([*tests])
    return made


def document(name: str, suites: Iterable[TestSuite]) -> str:
    """Return the XML document of these suites."""
    root: Any = JUnitXml(_text(name))
    for each in suites:
        root.append(each)
    # The library also sums up skipped tests, for which Jenkins' schema has no place.
    for count in ("tests", "failures", "errors", "time"):
        setattr(root, count, round(sum(getattr(each, count) for each in root), 3))
    written = io.BytesIO()
    root.write(written, pretty=True)
    return written.getvalue().decode()


def _text(value: object) -> str:
    return _FORBIDDEN.sub("\ufffd", str(value))
