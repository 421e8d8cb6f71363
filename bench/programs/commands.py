"""Programs that read an input, print a result, and end: a table of command lines.

The result must be the same under every malloc. `--program` says which one runs.
"""

import argparse
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from random import Random

from bench.programs import gcc, ghostscript, z3
from bench.programs.common import WORK, Bench, Outcome, Script, cached, main, tool
from bench.programs.inputs import designs, documents, sources
from bench.programs.process import digest

BORROWED = [Path(str(module.__file__)) for module in (gcc, ghostscript, z3)]
FOLDER = Path(__file__).with_name("inputs")
MACHINE = platform.machine()
PARTS = 8
R_HOME = "/usr/lib/R"
ENGLISH = "/usr/share/tesseract-ocr/5/tessdata/eng.traineddata"
PANDAS = "/usr/lib/python3/dist-packages/pandas"
GROUPED = (
    "[inputs] | map(select(.paid)) | group_by(.city) | map({city: .[0].city, count: length,"
    " sum: (map(.items[] | .price * .count) | add), notes: (map(.note) | sort | .[0:3])})"
)


class Given(Enum):
    """What stands for itself in a command line until the run."""

    INPUT = "the path of the input"
    AMOUNT = "how much is to be done"


INPUT, AMOUNT = Given.INPUT, Given.AMOUNT
Make = Callable[[Path, int], None]


@dataclass(frozen=True)
class Command:
    """A program, its input, and where it writes its result.

    `amount` is the work of a full run: as many units of the input, or rounds of the script.
    `result` is a file in the folder of the run; without it, the standard output counts.
    `any_order`: the program orders the lines of its result by addresses.
    """

    needs: Mapping[str, str]
    line: Sequence[str | Path | Given]
    amount: int
    make: Make | None = None
    suffix: str = "in"
    result: str = "output"
    any_order: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def inputs(self, bench: Bench) -> Path | None:
        """The input, which is made where it is not there yet."""
        make, amount = self.make, bench.count(self.amount)
        if make is None:
            return None
        stem = next(name for name, command in COMMANDS.items() if command is self)
        name = f"{stem}.{self.suffix}"
        makers = (Path(__file__), *BORROWED, *sorted(FOLDER.glob("*.py")))
        return cached(name, lambda path: make(path, amount), *makers, amount)

    def run(self, bench: Bench) -> Outcome:
        """One run."""
        amount = bench.count(self.amount)
        given = {INPUT: str(self.inputs(bench)), AMOUNT: str(amount)}
        line = [given[part] if isinstance(part, Given) else part for part in self.line]
        usage, output = bench.run(*line, environment=self.environment)
        result = output.with_name(self.result)
        if not self.any_order:
            return Outcome(usage, amount, digest(result))
        ordered = sorted(result.read_bytes().splitlines())
        return Outcome(usage, amount, digest(b"\n".join(ordered)))


def lines(of: Callable[[int], Iterable[str]]) -> Make:
    """An input that is text of so many units."""

    def make(path: Path, amount: int) -> None:
        with path.open("w") as file:
            file.writelines(f"{line}\n" for line in of(amount))

    return make


def preprocessed(path: Path, units: int) -> None:
    """A C++ source with all that it includes, as clang sees it."""
    written = path.with_name("source.cpp")
    written.write_text(gcc.source(range(units)))
    command = ("clang++", "-std=c++17", "-E", "-P", written, "-o", path)
    tool(*command, directory=path.parent)


def objects(path: Path, functions: int) -> None:
    """An archive of object files."""

    def compiled(part: int) -> str:
        source = path.with_name(f"part{part}.c")
        source.write_text("\n".join(sources.linked(part, functions, PARTS)))
        options = ("-c", "-g", "-O0", "-ffunction-sections", "-fdata-sections")
        tool("gcc", *options, source, directory=path.parent)
        return f"part{part}.o"

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        names = list(pool.map(compiled, range(PARTS)))
    tool("ar", "rcsD", path, *names, directory=path.parent)


def ghost(device: str, options: Sequence[str], source: Path, path: Path) -> None:
    """What Ghostscript makes of a document, as a file."""
    command = ("gs", "-q", "-dSAFER", "-dBATCH", "-dNOPAUSE", f"-sDEVICE={device}")
    written = f"-sOutputFile={path}"
    tool(*command, *options, written, source, directory=path.parent)


def picture(path: Path, rows: int) -> None:
    """A photograph."""
    path.write_bytes(documents.picture(rows))


def portable(path: Path, pages: int) -> None:
    """A document in PDF."""
    source = path.with_name("pages.ps")
    ghostscript.write(source, pages)
    ghost("pdfwrite", (), source, path)


def scanned(path: Path, count: int) -> None:
    """A picture of a printed page."""
    source = path.with_name("page.ps")
    source.write_text("\n".join(documents.printed_page(count)))
    ghost("pgmraw", ("-r150",), source, path)


def proofs(amount: int) -> Iterator[str]:
    """Terms and pigeons, neither of which can be."""
    yield "(set-logic ALL)"
    yield from z3.terms(amount, Random(5))
    yield "(check-sat)(reset)(set-logic QF_UF)"
    yield from z3.pigeons(6 + amount // 1000)
    yield "(check-sat)"


GS = {"gs": "ghostscript"}
COMMANDS: dict[str, Command] = {
    "clang": Command(
        {"clang": "clang"},
        (
            *("clang", "-cc1", "-triple", f"{MACHINE}-pc-linux-gnu", "-emit-obj"),
            *("-O1", "-std=c++17", "-fcxx-exceptions", "-fexceptions"),
            *("-disable-free", "-w", "-x", "c++-cpp-output", INPUT, "-o", "-"),
        ),
        5,
        preprocessed,
    ),
    "rustc": Command(
        {"/usr/bin/rustc": "rustc"},
        (
            *("/usr/bin/rustc", "--edition", "2021", "--crate-type", "lib"),
            *("--crate-name", "work", "-C", "codegen-units=1", "--emit", "obj"),
            *("-o", "work.o", INPUT),
        ),
        6,
        lines(sources.rust),
        result="work.o",
    ),
    "gold": Command(
        {"ld.gold": "binutils", "gcc": "gcc"},
        (
            *("ld.gold", "--no-threads", "--gc-sections", "--icf=all", "-e", "start"),
            *("-o", "program", "--whole-archive", INPUT),
        ),
        5_000,
        objects,
        suffix="a",
        result="program",
    ),
    "perl": Command({"perl": "perl"}, ("perl", WORK / "script.pl", AMOUNT), 90_000),
    "php": Command(
        {"php": "php-cli"},
        ("php", "-n", WORK / "script.php", AMOUNT),
        120_000,
        environment={"USE_ZEND_ALLOC": "0"},
    ),
    "r": Command(
        {f"{R_HOME}/bin/exec/R": "r-base-core"},
        (
            *(f"{R_HOME}/bin/exec/R", "--no-echo", "--no-restore", "--vanilla"),
            *(f"--file={WORK / 'script.R'}", "--args", AMOUNT),
        ),
        250_000,
        environment={"R_HOME": R_HOME, "OMP_NUM_THREADS": "1"},
    ),
    "prolog": Command(
        {"swipl": "swi-prolog-nox"}, ("swipl", WORK / "script.prolog", AMOUNT), 120_000
    ),
    "gawk": Command(
        {"gawk": "gawk"},
        ("gawk", "-f", WORK / "script.awk", INPUT),
        12_000,
        lines(documents.text),
    ),
    "pandas": Command(
        {"/usr/bin/python3": "python3", PANDAS: "python3-pandas"},
        ("/usr/bin/python3", "-B", WORK / "frames.py", AMOUNT),
        600_000,
        environment={"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
    ),
    "jq": Command(
        {"jq": "jq"},
        ("jq", "-c", "-n", GROUPED, INPUT),
        70_000,
        lines(documents.json_lines),
        suffix="json",
    ),
    "xslt": Command(
        {"xsltproc": "xsltproc"},
        ("xsltproc", "--nonet", WORK / "style.xsl", INPUT),
        30_000,
        lines(documents.xml),
        suffix="xml",
    ),
    "troff": Command(
        {"troff": "groff"},
        ("troff", "-Tps", "-man", INPUT),
        3_000,
        lines(documents.page_source),
        suffix="1",
    ),
    "pdf": Command(
        {"pdftoppm": "poppler-utils", **GS},
        ("pdftoppm", "-r", "72", INPUT),
        8,
        portable,
        suffix="pdf",
    ),
    "svg": Command(
        {"rsvg-convert": "librsvg2-bin"},
        ("rsvg-convert", INPUT),
        200,
        lines(documents.drawing),
        suffix="svg",
    ),
    "inkscape": Command(
        {"inkscape": "inkscape"},
        (
            *("inkscape", "--export-type=svg", "--export-plain-svg"),
            *("--export-filename=drawn.svg", INPUT),
            "--actions=select-all;object-to-path;path-union",
        ),
        250,
        lines(documents.drawing),
        suffix="svg",
        result="drawn.svg",
    ),
    "imagemagick": Command(
        {"convert": "imagemagick"},
        (
            *("convert", "-limit", "thread", "1", INPUT, "-duplicate", "5"),
            *("-resize", "130%", "-rotate", "9", "-emboss", "1", "-resize", "50%"),
            *("-append", "ppm:-"),
        ),
        512,
        picture,
        suffix="ppm",
    ),
    "tesseract": Command(
        {"tesseract": "tesseract-ocr", ENGLISH: "tesseract-ocr-eng", **GS},
        ("tesseract", INPUT, "-", "--psm", "6"),
        50,
        scanned,
        suffix="pgm",
        environment={"OMP_THREAD_LIMIT": "1"},
    ),
    "gdal": Command(
        {"ogr2ogr": "gdal-bin"},
        ("ogr2ogr", "-f", "GeoJSON", "/vsistdout/", INPUT, "-simplify", "0.001"),
        8_000,
        lines(designs.land),
        suffix="geojson",
    ),
    "yosys": Command(
        {"yosys": "yosys"},
        (
            *("yosys", "-q", "-f", "verilog", INPUT, "-p"),
            "hierarchy -top top; proc; flatten; opt_clean; write_json /dev/stdout",
        ),
        60,
        lines(designs.verilog),
        suffix="v",
    ),
    "openscad": Command(
        {"openscad": "openscad"},
        ("openscad", "-o", "solid.stl", "--export-format", "asciistl", INPUT),
        6,
        lines(designs.solid),
        suffix="scad",
        result="solid.stl",
        any_order=True,
    ),
    "ngspice": Command(
        {"ngspice": "ngspice"},
        ("ngspice", "-b", INPUT),
        800,
        lines(designs.circuit),
        suffix="cir",
        result="waves",
    ),
    "gringo": Command(
        {"gringo": "gringo"},
        ("gringo", INPUT),
        500,
        lines(sources.puzzle),
        suffix="lp",
    ),
    "cvc5": Command(
        {"cvc5": "cvc5"},
        ("cvc5", "--dump-proofs", INPUT),
        2_000,
        lines(proofs),
        suffix="smt2",
    ),
    "ctags": Command(
        {"ctags": "universal-ctags"},
        ("ctags", "-f", "-", "--sort=yes", "--fields=*", INPUT),
        60_000,
        lines(lambda functions: sources.linked(0, functions)),
        suffix="c",
    ),
}


def scripts() -> dict[str, Script]:
    """Every command as a script of its own."""
    return {
        name: Script(name, __doc__ or "", command.needs, command.run, command.inputs)
        for name, command in COMMANDS.items()
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--program", choices=COMMANDS, required=True)
    chosen, rest = parser.parse_known_args()
    main(scripts()[chosen.program], rest)
