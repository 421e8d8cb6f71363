"""Ruby: a script with objects, strings, hashes, JSON and blocks."""

from bench.programs.common import WORK, Bench, Outcome, Script, main
from bench.programs.process import digest

ROUNDS = 12


def run(bench: Bench) -> Outcome:
    rounds = bench.count(ROUNDS)
    usage, output = bench.run(
        *("ruby", "--disable=gems", WORK / "script.rb", str(rounds))
    )
    return Outcome(usage, rounds, digest(output))


SCRIPT = Script("ruby", __doc__, {"ruby": "ruby"}, run)

if __name__ == "__main__":
    main(SCRIPT)
