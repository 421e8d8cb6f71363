"""Ghostscript renders a generated document: text, curves, gradients, clips, images."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from bench.programs.common import Bench, Outcome, Script, cached, main
from bench.programs.process import digest

PAGES = 12
WIDTH, HEIGHT = 595, 842
FONTS = ("Times-Roman", "Helvetica-Bold", "Courier", "Times-Italic", "Palatino-Roman")
WORDS = [
    "a",
    "page",
    "of",
    "many",
    "words",
    "in",
    "several",
    "fonts",
    "and",
    "sizes",
    "which",
    "are",
    "drawn",
    "one",
    "by",
    "one",
]
PROLOGUE = """%!PS-Adobe-3.0
% count litter: strings, arrays and dictionaries that become garbage at once
/litter {
  1 sub 0 1 3 -1 roll
  { /n exch def [ n n 20 string cvs 7 dict dup /number n put ] pop } for
} bind def"""


def page(chance: Random) -> Iterator[str]:
    """The PostScript of one page."""

    def numbers(count: int, most: int) -> str:
        return " ".join(str(chance.randrange(most)) for _ in range(count))

    def colour() -> str:
        return " ".join(f"{chance.random():.2f}" for _ in range(3))

    for row in range(40):
        size = chance.randrange(7, 15)
        yield f"/{chance.choice(FONTS)} findfont {size} scalefont setfont"
        yield f"{colour()} setrgbcolor 30 {HEIGHT - 20 * row} moveto"
        yield " ".join(f"({chance.choice(WORDS)} ) show" for _ in range(14))
    for _ in range(60):
        yield f"newpath {numbers(1, WIDTH)} {numbers(1, HEIGHT)} moveto"
        yield " ".join(f"{numbers(6, 700)} curveto" for _ in range(6))
        end = chance.choice(("stroke", "[3 5] 0 setdash stroke", "closepath eofill"))
        yield f"gsave {colour()} setrgbcolor {numbers(1, 6)} setlinewidth {end} grestore"
    for _ in range(8):
        yield f"gsave newpath {numbers(1, WIDTH)} {numbers(1, HEIGHT)} 90 0 360 arc clip"
        yield (
            "<< /ShadingType 2 /ColorSpace /DeviceRGB"
            f" /Coords [{numbers(4, 600)}] /Extend [true true] /Function"
            f" << /FunctionType 2 /Domain [0 1] /N 1.5 /C0 [{colour()}] /C1 [{colour()}] >>"
            " >> shfill grestore"
        )
    for _ in range(4):
        side = chance.randrange(20, 60)
        yield f"gsave {numbers(2, 500)} translate {side * 2} dup scale"
        yield f"{side} {side} 8 [{side} 0 0 -{side} 0 {side}]"
        yield f"{{<{chance.randbytes(3 * side).hex()}>}} false 3 colorimage grestore"
    yield "20000 litter showpage"


def write(path: Path, pages: int) -> None:
    chance = Random(11)
    lines = [PROLOGUE, *(line for _ in range(pages) for line in page(chance))]
    path.write_text("\n".join(lines) + "\n")


def inputs(bench: Bench) -> Path:
    pages = bench.count(PAGES)
    return cached("pages.ps", lambda path: write(path, pages), Path(__file__), pages)


def run(bench: Bench) -> Outcome:
    usage, output = bench.run(
        *("gs", "-q", "-dSAFER", "-dBATCH", "-dNOPAUSE", "-sDEVICE=ppmraw", "-r72"),
        *("-dTextAlphaBits=4", "-dGraphicsAlphaBits=4", "-sOutputFile=%stdout"),
        inputs(bench),
    )
    return Outcome(usage, bench.count(PAGES), digest(output))


SCRIPT = Script(
    "ghostscript",
    __doc__,
    {"gs": "ghostscript", "/usr/share/fonts/opentype/urw-base35": "fonts-urw-base35"},
    run,
    inputs,
)

if __name__ == "__main__":
    main(SCRIPT)
