"""Figures and facts in words, the same in every form of the report."""

from bench.compare.results import Results
from bench.compare.rounds import FEWEST_AT_ALL, FEWEST_ROUNDS, CaseResult

_TIMES = ((1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s"))


def number(value: float) -> str:
    """Three figures, or as many as stand before the point."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    if abs(value) < 0.01:
        return f"{value:.2g}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def small(value: float) -> str:
    """A count for each operation, as far as it is known."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"


def time_unit(nanoseconds: float) -> tuple[float, str]:
    """The unit that fits a time: its nanoseconds and its name."""
    fitting = (each for each in reversed(_TIMES) if nanoseconds >= each[0])
    return next(fitting, _TIMES[0])


def duration(nanoseconds: float) -> str:
    """A time in the unit that fits."""
    scale, unit = time_unit(nanoseconds)
    return f"{number(nanoseconds / scale)} {unit}"


def size(kibibytes: float) -> str:
    """A size in MiB."""
    return f"{number(kibibytes / 1024)} MiB"


def sentence(text: str) -> str:
    """A text with a capital at its start and a full stop at its end."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def command_line(result: CaseResult) -> str:
    """What was run, with the parameters that the workload reports."""
    case = result.case
    runs = next(iter(result.runs.values()), None)
    params = runs[0].params if runs else case.params
    program = case.program
    if case.script:
        program = f"python -m bench.programs.{case.program}"
    return " ".join([program, *(f"--{key} {value}" for key, value in params.items())])


def headline(results: Results) -> str:
    """When it was measured, and how."""
    state = "interrupted, what was done by then" if results.interrupted else "complete"
    rounds = {len(runs) for each in results.cases for runs in each.runs.values()}
    fewest, most = min(rounds, default=0), max(rounds, default=0)
    made = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    return (
        f"Measured {results.started}, {results.kind} run, {state}, "
        f"measured rounds of each workload: {made}."
    )


def setting(results: Results) -> list[tuple[str, str]]:
    """What the reader needs to judge or repeat the figures."""
    machine = results.machine
    return [
        ("processor", f"{machine.cpu}, {machine.cores} cores"),
        ("memory", f"{machine.memory_mib} MiB, pages of {machine.page_size} B"),
        ("system", f"{machine.system}, {machine.kernel}, {machine.libc}"),
        ("transparent huge pages", machine.transparent_huge_pages),
        ("frequency governor", machine.governor),
        ("load at start", f"{machine.load_at_start:.2f}"),
        ("compiler of the workloads", results.compiler),
        *((peer.name, peer.version) for peer in results.peers),
    ]


def noise(precision: float) -> str:
    """What a ~ in the tables means."""
    return (
        "~: noisy, the median is known less "
        f"exactly than ±{precision:.1%}, or many runs were kept from the processor."
    )


def marks(precision: float) -> str:
    """What the marks in the tables mean."""
    return f"Bold: the peer that is the measure. {noise(precision)}"


def method(results: Results) -> list[str]:
    """How it was measured."""
    return [
        "Every round runs each allocator once, as a process of its own, beginning "
        "with another one each time. The first round is discarded.",
        "Rounds go on until the 95 % interval of every median is within "
        f"±{results.precision:.1%}, at least {FEWEST_ROUNDS} if so many are asked for, "
        "up to the limit of repeats. A quick run has at least "
        f"{FEWEST_AT_ALL}, as its time is limited.",
        "A ratio is the median over the rounds of the allocator's value over the "
        "best peer's in the same round. Allod is never the measure.",
        "The overview is the geometric mean of these ratios; its ± comes from the "
        "intervals of the ratios, taken as independent.",
        "Where fewer than six rounds leave no interval of 95 %, the range of the "
        "values stands in for it.",
        "An operation is what one round of the workload's loop does, such as a malloc "
        "and a free. For a sweep the figure is the geometric mean over its sizes.",
        "Peak and final size are VmHWM and VmRSS, read by the workload itself.",
        "Each process tells which library its malloc comes from, and all allocators "
        "must reach the same checksum.",
        "What giving memory back costs is measured in two runs of their own: calls "
        "of madvise and munmap by the program's threads under strace, which adds some "
        "40 µs to each, and the processor time of threads that are open to no signal.",
        "Cache lines are counted in an emulator that takes each thread for a core with an "
        "endless cache and lets threads take turns of some memory accesses, 20 and 60 on "
        "average. A line travels for a read of what another core wrote last, and for a "
        "write to what another core holds. In brackets: for the allocator's own code. The "
        "emulator has no restartable sequences.",
        "Instructions are counted in a run of their own: by callgrind over the "
        "measured part with the parameters of a quick run, or by perf over the whole "
        "process where the processor has counters.",
    ]
