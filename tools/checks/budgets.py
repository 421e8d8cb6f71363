"""Counts the instructions on the fast paths of functions in a shared library for x86-64 or arm64,
and fails if there are more than budgeted, or if one of them writes to the stack. With --sizes: how
large the libraries of a folder are."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
BUDGETS = Path(__file__).with_name("budgets.toml")
SIZES = Path(__file__).with_name("budgets-sizes.toml")
BUDGETS_ARM64 = Path(__file__).with_name("budgets-arm64.toml")
MOST_PATHS = 20_000
LINE = re.compile(r"^\s*([0-9a-f]+):\t(.+?)\s*$")
SYMBOL = re.compile(r"^\s*\d+:\s+([0-9a-f]+)\s+(\d+|0x[0-9a-f]+)\s+FUNC\s.*?\s(\S+)$")
SECTION = re.compile(r"^\s*\[ *\d+\] (\S+) +\S+ +[0-9a-f]+ [0-9a-f]+ ([0-9a-f]+) ")
DIRECT = re.compile(r"^([0-9a-f]+)\b")
PREFIXES = {"bnd", "notrack", "lock", "rep", "repz", "repnz", "data16", "cs"}
FREE_OF_CHARGE = {"endbr64", "endbr32", "nop", "nopw", "nopl"}
READS_ONLY = re.compile(
    r"(cmp|test|bt|lea|nop)[bwlq]?|prefetch\w*|v?u?comis[sd]|i?(mul|div)[bwlq]?"
)


Rules = Mapping[str, Mapping[str, object]]


class CheckError(Exception):
    """The library cannot be checked; the text says why."""


@dataclass(frozen=True)
class Instruction:
    """One line of the disassembly."""

    address: int
    mnemonic: str
    operands: str

    @property
    def text(self) -> str:
        """As it is printed."""
        return f"{self.mnemonic} {self.operands}".strip()

    @property
    def counts(self) -> bool:
        """Whether it is paid for."""
        return self.mnemonic not in FREE_OF_CHARGE

    @property
    def target(self) -> int | None:
        """Where a direct jump goes."""
        found = DIRECT.match(self.operands)
        return int(found[1], 16) if found else None

    @property
    def is_return(self) -> bool:
        return self.mnemonic.startswith("ret")

    @property
    def is_jump(self) -> bool:
        return self.mnemonic.startswith("jmp")

    @property
    def is_branch(self) -> bool:
        return not self.is_jump and self.mnemonic.startswith(("j", "loop"))

    @property
    def ends_path(self) -> bool:
        """Whether control leaves for somewhere that no fast path goes."""
        return self.mnemonic.startswith(("call", "ud2", "hlt", "int3", "syscall"))

    @property
    def stored_to(self) -> str | None:
        """The memory operand that it writes, if it writes one."""
        if READS_ONLY.fullmatch(self.mnemonic) or self.is_jump or self.is_branch:
            return None
        # AT&T order: the destination comes last.
        last = re.split(r",(?![^()]*\))", self.operands)[-1].strip()
        is_memory = "(" in last or re.match(r"^%[a-z]s:", last) is not None
        return last if is_memory and not self.mnemonic.startswith("push") else None

    @property
    def touches_stack(self) -> bool:
        """Whether it writes to the stack or moves the stack pointer."""
        if self.mnemonic.startswith(("push", "pop", "call", "enter", "leave")):
            return True
        if re.search(r"%[re]?sp$", self.operands) and self.stored_to is None:
            return not self.mnemonic.startswith(("cmp", "test"))
        stored = self.stored_to
        return stored is not None and re.search(r"\(%r[sb]p\b", stored) is not None


class Arm64Instruction(Instruction):
    """The same for arm64."""

    @property
    def counts(self) -> bool:
        return self.mnemonic not in ("nop", "bti")

    @property
    def target(self) -> int | None:
        found = re.search(r"\b([0-9a-f]+) <", self.operands)
        return int(found[1], 16) if found else None

    @property
    def is_jump(self) -> bool:
        return self.mnemonic in ("b", "br")

    @property
    def is_branch(self) -> bool:
        return self.mnemonic.startswith(("b.", "cb", "tb"))

    @property
    def ends_path(self) -> bool:
        return self.mnemonic in ("bl", "blr", "brk", "svc", "udf")

    @property
    def stored_to(self) -> str | None:
        atomics = ("cas", "swp", "ldadd", "ldclr", "ldeor", "ldset")
        found = re.search(r"\[.*", self.operands)
        return (
            found[0] if found and self.mnemonic.startswith(("st", *atomics)) else None
        )

    @property
    def touches_stack(self) -> bool:
        return re.search(r"\bw?sp\b", self.operands) is not None


@dataclass(frozen=True)
class Machine:
    """What is different from one machine to the other."""

    instruction: type[Instruction]
    objdump: str
    comment: str
    budgets: Path


MACHINES = {
    "Advanced Micro Devices X86-64": Machine(Instruction, "objdump", "#", BUDGETS),
    "AArch64": Machine(
        Arm64Instruction, "aarch64-linux-gnu-objdump", "//", BUDGETS_ARM64
    ),
}


def machine_of(library: Path) -> Machine:
    """The machine that a library is for."""
    header = _output("readelf", "--file-header", str(library))
    name = re.search(r"^ *Machine: *(.*)$", header, re.MULTILINE)
    if name is None or name[1] not in MACHINES:
        raise CheckError(f"{library} is neither for x86-64 nor for arm64")
    return MACHINES[name[1]]


@dataclass(frozen=True)
class Route:
    """One way through a function, from its entry to a return."""

    instructions: tuple[Instruction, ...]

    @property
    def count(self) -> int:
        """What it costs."""
        return sum(instruction.counts for instruction in self.instructions)

    @property
    def stores(self) -> bool:
        """Whether it writes to memory other than the stack."""
        return any(
            instruction.stored_to is not None and not instruction.touches_stack
            for instruction in self.instructions
        )

    @property
    def stack_uses(self) -> list[str]:
        """The instructions that use the stack."""
        return [step.text for step in self.instructions if step.touches_stack]


def fast_paths(library: Path, symbol: str) -> list[Route]:
    """All ways from a function's entry to a return in it that call nothing and have no loop, from
    the shortest to the longest. Jumps out of the function are other paths' business."""
    code = disassemble(library, symbol)
    positions = {instruction.address: index for index, instruction in enumerate(code)}
    paths: list[Route] = []
    for steps in _walk(code, positions):
        paths.append(Route(tuple(code[index] for index in steps)))
        if len(paths) > MOST_PATHS:
            raise CheckError(
                f"{symbol} has more than {MOST_PATHS} paths without a call"
            )
    return sorted(paths, key=lambda path: path.count)


def _walk(
    code: Sequence[Instruction], positions: Mapping[int, int]
) -> Iterator[list[int]]:
    """Depth first over the control flow; a path never visits an instruction twice."""
    waiting: list[list[int]] = [[0]]
    while waiting:
        steps = waiting.pop()
        instruction = code[steps[-1]]
        if instruction.is_return:
            yield steps
            continue
        for index in _successors(code, positions, steps[-1], instruction):
            if index not in steps:
                waiting.append([*steps, index])


def _successors(
    code: Sequence[Instruction],
    positions: Mapping[int, int],
    index: int,
    instruction: Instruction,
) -> list[int]:
    if instruction.ends_path:
        return []
    found = []
    if not instruction.is_jump and index + 1 < len(code):
        found.append(index + 1)
    if instruction.is_jump or instruction.is_branch:
        target = instruction.target
        if target is not None and target in positions:
            found.append(positions[target])
    return found


def disassemble(library: Path, symbol: str) -> list[Instruction]:
    """The instructions of one exported function."""
    address, size = _extent(library, symbol)
    machine = machine_of(library)
    text = _output(
        machine.objdump if shutil.which(machine.objdump) else "objdump",
        "--disassemble",
        "--no-show-raw-insn",
        f"--start-address={address:#x}",
        f"--stop-address={address + size:#x}",
        str(library),
    )
    code = []
    for line in text.splitlines():
        match = LINE.match(line)
        if match is None:
            continue
        words = match[2].split(machine.comment, 1)[0].split()
        while len(words) > 1 and words[0] in PREFIXES:
            words.pop(0)
        operands = " ".join(words[1:])
        code.append(machine.instruction(int(match[1], 16), words[0], operands))
    if not code or code[0].address != address:
        raise CheckError(f"{symbol} of {library} cannot be disassembled")
    return code


def _extent(library: Path, symbol: str) -> tuple[int, int]:
    for line in _output("readelf", "--dyn-syms", "--wide", str(library)).splitlines():
        match = SYMBOL.match(line)
        if match and match[3].split("@", 1)[0] == symbol and int(match[1], 16):
            return int(match[1], 16), int(match[2], 0)
    raise CheckError(f"{library} has no function {symbol}")


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CheckError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@dataclass(frozen=True)
class Finding:
    """What was found about one function."""

    symbol: str
    count: int
    at_most: int
    path: Route

    @property
    def complaints(self) -> list[str]:
        """Why the function fails."""
        found = []
        if self.count > self.at_most:
            found.append(
                f"{self.symbol}: {self.count} instructions, budget {self.at_most}"
            )
        found += [f"{self.symbol}: uses the stack: {it}" for it in self.path.stack_uses]
        return found


def read_budgets(file: Path) -> Rules:
    """The rule of each function, from a file like budgets.toml."""
    return tomllib.loads(file.read_text())


def measure(library: Path, budgets: Rules) -> list[Finding]:
    """Measures every function that has a budget, in the order of the file."""
    findings: dict[str, Finding] = {}
    for symbol, rule in budgets.items():
        path = chosen_path(
            fast_paths(library, symbol),
            symbol,
            str(rule["path"]),
            stores=rule.get("stores") is not False,
        )
        if "at_most" in rule:
            at_most = int(str(rule["at_most"]))
        else:
            at_most = findings[str(rule["as"])].count
        findings[symbol] = Finding(symbol, path.count, at_most, path)
    return list(findings.values())


def chosen_path(
    paths: Sequence[Route], symbol: str, which: str, *, stores: bool = True
) -> Route:
    """The fast path that the budget is for: one that moves a block, or just answers."""
    chosen = [path for path in paths if path.stores == stores]
    if not chosen:
        what = "something" if stores else "nothing"
        raise CheckError(
            f"{symbol} has no path to a return that stores {what} and calls nothing"
        )
    if which not in ("shortest", "longest"):
        raise CheckError(f"{symbol}: path is '{which}', not 'shortest' or 'longest'")
    return chosen[0] if which == "shortest" else chosen[-1]


def sizes_of(library: Path) -> dict[str, int]:
    """Bytes in the file of what the process may write, and of the file without debug information
    and names that only debuggers need."""
    sections = _output("readelf", "--section-headers", "--wide", str(library))
    found = [SECTION.match(line) for line in sections.splitlines()]
    data = [int(one[2], 16) for one in found if one and one[1] == ".data"]
    with tempfile.TemporaryDirectory(prefix="allod-sizes-") as scratch:
        stripped = Path(scratch) / library.name
        _output("strip", "-o", str(stripped), str(library))
        return {"data": sum(data), "stripped": stripped.stat().st_size}


def size_complaints(folder: Path, rules: Rules) -> list[str]:
    """What is larger than a file like budgets-sizes.toml allows the libraries of a folder."""
    found = []
    for name, rule in rules.items():
        library = folder / f"{name}.so"
        if not library.is_file():
            raise CheckError(f"{library} is not there")
        for what, size in sizes_of(library).items():
            at_most = int(str(rule[what])) * 1024
            if size > at_most:
                found.append(f"{name}: {what} has {size} bytes, budget {at_most}")
    return found


@click.command(help=__doc__)
@click.argument(
    "library",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=ROOT / "build" / "release" / "liballod.so",
)
@click.option(
    "--budgets",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The file with the budgets; by default, that of the library's machine.",
)
@click.option("--verbose", "-v", is_flag=True, help="Print the chosen paths.")
@click.option(
    "--sizes",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Check the sizes of the libraries in this folder instead.",
)
def main(
    library: Path,
    budgets: Path | None,
    verbose: bool,
    sizes: Path | None,
) -> None:
    """Prints what each function costs and fails if one costs too much."""
    try:
        if sizes is not None:
            sys.exit(1 if _report_sizes(sizes) else 0)
        rules = read_budgets(budgets or machine_of(library).budgets)
        failed = _report(library, rules, verbose)
    except CheckError as error:
        raise click.ClickException(str(error)) from error
    sys.exit(1 if failed else 0)


def _report_sizes(folder: Path) -> bool:
    rules = {
        name: rule
        for name, rule in read_budgets(SIZES).items()
        if (folder / f"{name}.so").is_file()
    }
    for name, rule in rules.items():
        for what, size in sizes_of(folder / f"{name}.so").items():
            print(f"{name}: {what} has {size / 1024:.1f} of {rule[what]} KiB")
    complaints = size_complaints(folder, rules)
    for complaint in complaints:
        print(f"error: {complaint}")
    return bool(complaints)


def _report(library: Path, rules: Rules, verbose: bool) -> bool:
    failed = False
    for finding in measure(library, rules):
        counts = f"{finding.count} of {finding.at_most}"
        print(f"{finding.symbol}: {counts} instructions")
        if verbose:
            for step in finding.path.instructions:
                print(f"    {step.address:x}  {step.text}")
        for complaint in finding.complaints:
            failed = True
            print(f"error: {complaint}")
    return failed


if __name__ == "__main__":
    main()
