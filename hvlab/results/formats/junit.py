"""JUnit XML, as Jenkins and its kin read it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from xml.etree import ElementTree

# What XML 1.0 has no way to write.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Test:
    """One test; ``seconds`` is None where it is unknown. ``failure`` and ``skipped`` are the reasons."""

    __test__ = False  # pytest takes it for one of its own otherwise

    name: str
    classname: str
    seconds: float | None = None
    failure: str | None = None
    skipped: str | None = None
    output: str | None = None


@dataclass(frozen=True)
class JUnitSuite:
    """Tests that belong together; ``timestamp`` is UTC, ISO 8601."""

    name: str
    tests: Sequence[Test]
    timestamp: str | None = None
    properties: Mapping[str, object] = field(default_factory=dict)


def document(name: str, suites: Iterable[JUnitSuite]) -> str:
    """Return the XML document of these suites."""
    root = ElementTree.Element("testsuites")
    tests = [test for suite in suites for test in _suite(root, suite)]
    for key, value in {"name": name, **_counts(tests)}.items():
        root.set(key, _text(value))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def _suite(root: ElementTree.Element, suite: JUnitSuite) -> Sequence[Test]:
    counts = _counts(suite.tests) | {"skipped": sum(test.skipped is not None for test in suite.tests)}
    attributes = {"name": suite.name, **counts}
    if suite.timestamp:
        # Without a zone and without fractions, as xs:dateTime of the schema has it.
        attributes["timestamp"] = suite.timestamp[:19]
    element = _element(root, "testsuite", attributes)
    if suite.properties:
        properties = _element(element, "properties", {})
        for name, value in suite.properties.items():
            _element(properties, "property", {"name": name, "value": value})
    for test in suite.tests:
        _test(element, test)
    return suite.tests


def _test(suite: ElementTree.Element, test: Test) -> None:
    seconds = {} if test.seconds is None else {"time": f"{test.seconds:.3f}"}
    element = _element(suite, "testcase", {"name": test.name, "classname": test.classname, **seconds})
    for tag, kind, reason in (("failure", "failed", test.failure), ("skipped", "skipped", test.skipped)):
        if reason is not None:
            first = reason.strip().partition("\n")[0]
            _element(element, tag, {"message": first, "type": kind}).text = _text(reason)
    if test.output:
        _element(element, "system-out", {}).text = _text(test.output)


def _counts(tests: Sequence[Test]) -> dict[str, object]:
    known = [test.seconds for test in tests if test.seconds is not None]
    failed = sum(test.failure is not None for test in tests)
    seconds = {"time": f"{sum(known):.3f}"} if known else {}
    return {"tests": len(tests), "failures": failed, "errors": 0, **seconds}


def _element(parent: ElementTree.Element, tag: str, attributes: Mapping[str, object]) -> ElementTree.Element:
    return ElementTree.SubElement(parent, tag, {name: _text(value) for name, value in attributes.items()})


def _text(value: object) -> str:
    return _FORBIDDEN.sub("\ufffd", str(value))
