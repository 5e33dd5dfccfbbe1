"""Findings of the doctor: verdict, observation and remedy for one subject."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from rich.console import Console
from rich.text import Text

from arena.common.text import count_of

Verdict = Literal["ok", "warning", "problem"]

_STYLES: dict[Verdict, str] = {"ok": "green", "warning": "yellow", "problem": "bold red"}


class Finding(NamedTuple):
    """One line of the report.

    Attributes:
      verdict: ok; warning: a run works, but slower or less safely than it could; problem: it fails or is wrong.
      subject: subject of the check.
      found: observation.
      remedy: remedy; empty if none is needed.
    """

    verdict: Verdict
    subject: str
    found: str
    remedy: str = ""


def ok(subject: str, found: str) -> Finding:
    """Return a finding without a remedy."""
    return Finding("ok", subject, found)


def warning(subject: str, found: str, remedy: str) -> Finding:
    """Return a finding that costs speed or safety."""
    return Finding("warning", subject, found, remedy)


def problem(subject: str, found: str, remedy: str) -> Finding:
    """Return a finding that stops a run or makes it wrong."""
    return Finding("problem", subject, found, remedy)


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 1 if anything is a problem, else 0."""
    return int(any(finding.verdict == "problem" for finding in findings))


def show(findings: Sequence[Finding], console: Console) -> None:
    """Print a line for each finding, its remedy below it, and a summary."""
    width = max(len(finding.subject) for finding in findings)
    for verdict, subject, found, remedy in findings:
        console.print(Text.assemble((f"{verdict:<9}", _STYLES[verdict]), f"{subject:<{width}}  {found}"))
        if remedy:
            console.print(Text(f"{'':<{11 + width}}-> {remedy}"))
    counts = {verdict: sum(finding.verdict == verdict for finding in findings) for verdict in _STYLES}
    counts_text = (f"{counts['ok']} ok", count_of(counts["warning"], "warning"), count_of(counts["problem"], "problem"))
    console.print(Text(f"\n{', '.join(counts_text)}"))
