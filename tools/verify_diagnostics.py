# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``--verify-diagnostics``: compare what was reported with the ``expected-...`` comments of the input.

As in mlir-opt (``SourceMgrDiagnosticVerifierHandler``)::

    // expected-error @+1 {{substring of the message}}
    // expected-warning-re @below {{text with {{reg.*ex}} parts}}
    // expected-note @-2 {{...}}      expected-remark @above {{...}}      expected-error @unknown {{...}}

``@above`` and ``@below`` mean the nearest line without an expectation; without ``@`` the comment's own line is meant.
Each expectation must be met exactly once, and every diagnostic must be expected.
"""

import re
from dataclasses import dataclass

from kiln.passes.diagnostics import Diagnostic

__all__ = ["Expectation", "parse_expectations", "verify"]

_EXPECTED = re.compile(
    r"expected-(?P<kind>error|note|remark|warning)(?P<re>-re)? *(?:@(?P<at>[+-]\d+|above|below|unknown))? *"
    r"\{\{(?P<text>.*)\}\}\s*$"
)
_MALFORMED = re.compile(r"//.*\bexpected-(error|note|remark|warning)")


@dataclass
class Expectation:
    """``line`` is where the diagnostic must be (None: at an unknown location), ``written`` where the comment stands."""

    severity: str
    text: str
    line: int | None
    written: int
    pattern: re.Pattern[str] | None = None
    met: bool = False

    def matches(self, message: str) -> bool:
        """Whether the message holds the expected text, or the regular expression matches inside it."""
        return self.pattern.search(message) is not None if self.pattern else self.text in message


def parse_expectations(text: str) -> tuple[list[Expectation], list[Diagnostic]]:
    """The expectations in ``text`` and errors for comments that look like one but are not well formed."""
    lines = text.split("\n")
    found: list[Expectation] = []
    errors: list[Diagnostic] = []
    waiting: list[Expectation] = []  # those with @below
    last_plain = 0
    for number, line in enumerate(lines, start=1):
        match = _EXPECTED.search(line)
        if match is None:
            if _MALFORMED.search(line):
                errors.append(
                    Diagnostic("error", "malformed expectation; write expected-error @+1 {{text}}", "", number)
                )
                continue
            for expectation in waiting:
                expectation.line = number
            waiting = []
            last_plain = number
            continue
        at = match["at"]
        expectation = Expectation(match["kind"], match["text"], number, number)
        if at == "above":
            expectation.line = last_plain
        elif at == "below":
            waiting.append(expectation)
        elif at == "unknown":
            expectation.line = None
        elif at:
            expectation.line = number + int(at)
        if match["re"]:
            try:
                expectation.pattern = _pattern(match["text"])
            except re.error as error:
                errors.append(Diagnostic("error", f"invalid regular expression in expectation: {error}", "", number))
                continue
        found.append(expectation)
    return found, errors


def verify(text: str, reported: list[Diagnostic], only_expected: bool = False) -> list[Diagnostic]:
    """What is wrong: an error for each expectation not met and, unless ``only_expected``, each unexpected diagnostic.

    ``text`` has the lines that the diagnostics' numbers refer to. The file name is left to the caller.
    """
    expectations, errors = parse_expectations(text)
    for diagnostic in reported:
        for one in [diagnostic, *diagnostic.notes]:
            line = one.line or None
            met = next(
                (
                    e
                    for e in expectations
                    if not e.met and e.severity == one.severity and e.line == line and e.matches(one.message)
                ),
                None,
            )
            if met is not None:
                met.met = True
            elif not only_expected:
                where = "" if line else " at an unknown location"
                message = f"unexpected {one.severity}{where}: {' '.join(one.message.split())}"
                errors.append(Diagnostic("error", message, one.file, one.line, one.column))
    for e in expectations:
        if not e.met:
            where = "an unknown location" if e.line is None else f"line {e.line}"
            errors.append(
                Diagnostic("error", f'expected {e.severity} "{e.text}" at {where} was not produced', "", e.written)
            )
    return sorted(errors, key=lambda d: d.line)


def _pattern(text: str) -> re.Pattern[str]:
    """``{{...}}`` parts are regular expressions, the rest is literal."""
    parts = re.split(r"(\{\{.*?\}\})", text)
    return re.compile("".join(f"({p[2:-2]})" if p.startswith("{{") else re.escape(p) for p in parts))
