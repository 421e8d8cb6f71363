"""The results as Markdown."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from bench.compare import stats
from bench.compare.results import Ratios, Results, memory_ratios, time_ratios
from bench.compare.runner import FEWEST_ROUNDS, CaseResult
from bench.compare.targets import Check


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    align = ["---", *(["---:"] * (len(header) - 1))]
    return ["| " + " | ".join(row) + " |" for row in (header, align, *rows)] + [""]


def _ratio_table(
    results: Results,
    ratios_of: Callable[[CaseResult], Ratios | None],
    is_noisy: Callable[[CaseResult, str], bool],
) -> list[str]:
    names = [peer.name for peer in results.peers]
    rows = []
    for result in results.cases:
        ratios = ratios_of(result)
        if ratios is None:
            continue
        cells = []
        for name in names:
            if name not in ratios.of:
                cells.append("failed" if name in result.failures else "–")
                continue
            text = f"{ratios.of[name].median:.2f}"
            text += " ~" if is_noisy(result, name) else ""
            cells.append(f"**{text}**" if name == ratios.best else text)
        rows.append([result.case.name, *cells])
    return _table(["workload", *names], rows)


def overview(results: Results) -> list[str]:
    """The two tables that answer the question."""

    def time_is_noisy(result: CaseResult, name: str) -> bool:
        return result.is_noisy(name, results.precision)

    def memory_is_noisy(result: CaseResult, name: str) -> bool:
        return stats.summarise(result.peaks(name)).half_width() > results.precision

    return [
        "## Time against the best peer",
        "",
        *_ratio_table(results, time_ratios, time_is_noisy),
        "## Peak resident size against the leanest peer",
        "",
        *_ratio_table(results, memory_ratios, memory_is_noisy),
        "Bold: the peer that is the measure. ~: noisy, the median is known less "
        f"exactly than ±{results.precision:.1%}, or many runs were kept from the "
        "processor.",
        "",
    ]


def checks(found: Sequence[Check]) -> list[str]:
    """Pass or miss for each target."""
    rows = [
        [
            check.name,
            "pass" if check.passed else "**miss**",
            f"{check.value:.3f}",
            f"{check.limit:.2f}",
            check.detail,
        ]
        for check in found
    ]
    return [
        "## Targets",
        "",
        *_table(["target", "result", "measured", "limit", "detail"], rows),
    ]


def _case(result: CaseResult, precision: float) -> list[str]:
    rows = []
    for name, runs in result.runs.items():
        time = stats.summarise(result.times(name))
        interval = (
            "–"
            if time.low is None or time.high is None
            else f"{time.low:.2f} to {time.high:.2f}"
        )
        rows.append(
            [
                name + (" ~" if result.is_noisy(name, precision) else ""),
                f"{time.median:.2f}",
                f"{time.deviation:.2f}",
                interval,
                f"{median(run.peak_rss_kib for run in runs) / 1024:.1f}",
                f"{median(run.final_rss_kib for run in runs) / 1024:.1f}",
                f"{median(run.minor_faults for run in runs):.0f}",
                f"{median(run.user_seconds for run in runs):.3f}",
                f"{median(run.system_seconds for run in runs):.3f}",
                str(len(runs)),
            ]
        )
    header = [
        "allocator",
        "ns/op",
        "MAD",
        "95 % of the median",
        "peak MiB",
        "final MiB",
    ]
    header += ["faults", "user s", "system s", "runs"]
    params = next((runs[0].params for runs in result.runs.values()), {})
    arguments = " ".join(f"--{key} {value}" for key, value in params.items())
    lines = [
        f"### {result.case.name}",
        "",
        f"{result.case.about[0].upper()}{result.case.about[1:]}. "
        f"`{result.case.program} {arguments}`",
        "",
        *_table(header, rows),
    ]
    lines += [f"* {name} failed: {reason}" for name, reason in result.failures.items()]
    return [*lines, ""] if result.failures else lines


def _system_calls(results: Results) -> list[str]:
    if not results.system_calls:
        return []
    rows = []
    for calls in results.system_calls:
        size, worst = calls.worst
        often = sum(value >= 1 for value in calls.per_pair.values())
        rows.append([calls.peer, f"{worst:.3f}", str(size), str(often)])
    header = [
        "allocator",
        "most for a pair",
        "at size (B)",
        "sizes with one or more for each pair",
    ]
    return ["### System calls in the sweep", "", *_table(header, rows)]


def _setting(results: Results) -> list[str]:
    machine = results.machine
    rows = [
        ["processor", f"{machine.cpu}, {machine.cores} cores"],
        ["memory", f"{machine.memory_mib} MiB, pages of {machine.page_size} B"],
        ["system", f"{machine.system}, {machine.kernel}, {machine.libc}"],
        ["transparent huge pages", machine.transparent_huge_pages],
        ["frequency governor", machine.governor],
        ["load at start", f"{machine.load_at_start:.2f}"],
        ["compiler of the workloads", results.compiler],
        *([peer.name, peer.version] for peer in results.peers),
    ]
    return ["## Setting", "", *_table(["what", "value"], rows)]


def _method(precision: float) -> list[str]:
    return [
        "* Every round runs each allocator once, as a process of its own, beginning "
        "with another one each time. The first round is discarded.",
        "* Rounds go on until the 95 % interval of every median is within "
        f"±{precision:.1%}, at least {FEWEST_ROUNDS}, up to the limit of repeats.",
        "* A ratio is the median over the rounds of the allocator's value over the "
        "best peer's in the same round.",
        "* An operation is a pair of malloc and free; in `replace`, a replacement. "
        "For a sweep the figure is the geometric mean over its sizes.",
        "* Peak and final size are VmHWM and VmRSS, read by the workload itself.",
        "* Each process tells which library its malloc comes from, and all allocators "
        "must reach the same checksum.",
    ]


def render(results: Results, found: Sequence[Check]) -> str:
    """The whole report."""
    state = "interrupted, what was done by then" if results.interrupted else "complete"
    kind = "quick" if results.quick else "full"
    lines = [
        "# Allocators side by side",
        "",
        f"Measured {results.started}, {kind} run, {state}.",
        "",
        *(f"* {note}" for note in results.notes),
        *([""] if results.notes else []),
        *overview(results),
        "![Time, memory, and cost by size](plot.png)",
        "",
        *(checks(found) if found else []),
        "## Workloads",
        "",
        *(
            line
            for result in results.cases
            for line in _case(result, results.precision)
        ),
        *_system_calls(results),
        *_setting(results),
        "## Method",
        "",
        *_method(results.precision),
        "",
    ]
    return "\n".join(lines)
