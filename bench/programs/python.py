"""Python: one of several programs, with every object in the hands of malloc.

Python keeps small objects in pools of its own, which hides the allocator;
`--pymalloc` leaves them there.
"""

import argparse

from bench.programs.common import WORK, Bench, Outcome, Script, main
from bench.programs.process import digest

ROUNDS = {
    "trees": 24,
    "json": 8,
    "regex": 44,
    "objects": 190,
    "dicts": 5,
    "digits": 36,
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--program", choices=ROUNDS, default="objects")
    parser.add_argument(
        "--pymalloc", type=int, choices=(0, 1), default=0, help="small objects in pools"
    )


def run(bench: Bench) -> Outcome:
    program = bench.options.program
    rounds = bench.count(ROUNDS[program])
    pools = "pymalloc" if bench.options.pymalloc else "malloc"
    usage, output = bench.run(
        *("/usr/bin/python3", "-S", "-B", "-P", WORK / "rounds.py", program),
        str(rounds),
        environment={"PYTHONMALLOC": pools, "PYTHONHASHSEED": "0"},
    )
    return Outcome(usage, rounds, digest(output))


SCRIPT = Script(
    "python", __doc__, {"/usr/bin/python3": "python3"}, run, options=options
)

if __name__ == "__main__":
    main(SCRIPT)
