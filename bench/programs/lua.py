"""Lua: a script that compiles sources, and makes tables, strings and closures."""

from bench.programs.common import WORK, Bench, Outcome, Script, main
from bench.programs.process import digest

ROUNDS = 20


def run(bench: Bench) -> Outcome:
    rounds = bench.count(ROUNDS)
    usage, output = bench.run("lua5.4", WORK / "script.lua", str(rounds))
    return Outcome(usage, rounds, digest(output))


SCRIPT = Script("lua", __doc__, {"lua5.4": "lua5.4"}, run)

if __name__ == "__main__":
    main(SCRIPT)
