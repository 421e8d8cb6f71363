"""What became of a program with a defect, from what it and its allocator said.

The program marks on standard error when the defective operation comes, when it is over,
when the program finds itself harmed, and when it has done all its work. What else stands
there comes from the allocator or the C library.
"""

import signal
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bench.security.cases import ACCESS

_MARK = "@@"
# What an instruction does, and not what a check decides.
_FAULTS = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE})
# What the program ends with when it cannot go on, and what the system does when it has no memory
# left: nobody has checked anything.
_NO_CHECK = frozenset({3, -signal.SIGKILL})
_MOST_TEXT = 300


class Outcome(StrEnum):
    CAUGHT = "caught"
    HARMLESS = "harmless"
    LATE = "late"
    AT_EXIT = "at exit"
    CRASHED = "crashed"
    HUNG = "hung"
    MISSED = "missed"
    FAILED = "failed"


MEANING = {
    Outcome.CAUGHT: "stopped, or reported and without effect, at the defective operation",
    Outcome.HARMLESS: "not noticed, or silently refused; the program was not harmed",
    Outcome.LATE: "stopped or reported later, while the program went on",
    Outcome.AT_EXIT: "stopped or reported when the program ended",
    Outcome.CRASHED: "the allocator itself failed: a fault in it, or no memory any more",
    Outcome.HUNG: "the program did not end",
    Outcome.MISSED: "not noticed, and the program was harmed",
    Outcome.FAILED: "the program did not come to its defect, or ended for a reason of its own",
}
# Reported only after the program had been harmed.
AFTER_HARM = "*"
ORDER = (
    *("caught", "harmless", "late", "at exit", "late*", "at exit*"),
    *("crashed", "hung", "missed", "failed"),
)


@dataclass(frozen=True)
class Verdict:
    """``harmed``: how, in the program's words; ``ended`` and ``message`` are evidence."""

    outcome: Outcome
    harmed: str
    ended: str
    message: str

    @property
    def text(self) -> str:
        late = self.outcome in (Outcome.LATE, Outcome.AT_EXIT)
        return self.outcome + (AFTER_HARM if late and self.harmed else "")


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """What counts when a program was run more than once: luck does not."""
    return max(verdicts, key=lambda verdict: ORDER.index(verdict.text))


class _Account:
    """What was said, in the order of the phases: start, defect, afterwards, done."""

    def __init__(self, said: str) -> None:
        self.phase = ""
        self.malloc_from = ""
        self.effect = ""
        self.out_of_memory = False
        self.messages: dict[str, list[str]] = {}
        for line in filter(None, map(str.strip, said.splitlines())):
            if line.startswith(_MARK):
                self._mark(*line.removeprefix(_MARK).partition(" ")[::2])
            else:
                self.messages.setdefault(self.phase, []).append(line)

    def _mark(self, name: str, text: str) -> None:
        if name == "from":
            self.malloc_from = text
        elif name == "effect":
            self.effect = text
        elif name == "out-of-memory":
            self.out_of_memory = True
        else:
            self.phase = name

    @property
    def reported(self) -> str:
        """The first phase since the defect in which the allocator said something."""
        phases = ("before", "after", "done")
        return next((phase for phase in phases if phase in self.messages), "")

    @property
    def message(self) -> str:
        first = self.reported or next(iter(self.messages), "")
        text = " ".join(self.messages.get(first, []))
        return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} ..."


def judge(said: str, status: int | None, kind: str, library: Path | None) -> Verdict:
    """The verdict on one process.

    ``said`` is its standard error, ``status`` as subprocess has it, None if it was ended
    because it took too long.
    """
    account = _Account(said)
    wrong = _wrong_allocator(account.malloc_from, library)
    if wrong or not account.phase:
        outcome = Outcome.FAILED
    else:
        outcome = _outcome(account, status, kind)
    return Verdict(outcome, account.effect, _end(status), wrong or account.message)


_BY_PHASE = {
    "before": Outcome.CAUGHT,
    "after": Outcome.LATE,
    "done": Outcome.AT_EXIT,
}


def _outcome(account: _Account, status: int | None, kind: str) -> Outcome:
    if status is None:
        return Outcome.HUNG
    if account.out_of_memory:
        return Outcome.CRASHED
    if status in _NO_CHECK:
        return Outcome.FAILED
    if status == 0:
        return _of_survivor(account)
    if -status in _FAULTS:
        # Memory that refuses the program's own access is a check by the processor.
        is_guard = kind == ACCESS and account.phase == "before"
        return Outcome.CAUGHT if is_guard else Outcome.CRASHED
    return _BY_PHASE[account.phase]


def _of_survivor(account: _Account) -> Outcome:
    if account.effect:
        late = Outcome.AT_EXIT if account.reported == "done" else Outcome.LATE
        return late if account.reported else Outcome.MISSED
    return _BY_PHASE.get(account.reported, Outcome.HARMLESS)


def _end(status: int | None) -> str:
    if status is None:
        return "ended after the time limit"
    if status < 0:
        return signal.Signals(-status).name
    return f"exit status {status}"


def _wrong_allocator(malloc_from: str, library: Path | None) -> str:
    if not malloc_from:
        return ""
    source = Path(malloc_from)
    if library is None:
        right = source.name.startswith("libc.so")
    else:
        right = source.resolve() == library.resolve()
    return "" if right else f"malloc comes from {malloc_from}"
