"""Builds peers by their recipes, once: build/peers keeps what is built."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from workshop.locks import held

from bench.compare import packages
from bench.peers import crates
from bench.peers.recipes import HERE, Recipe, RecipeError

ROOT = HERE.parents[1]
PROBE = HERE / "probe.c"
CACHE = ROOT / "build" / "peers"
# No build takes a quarter of this on two cores.
LIMIT_SECONDS = 1800.0
PROGRESS_SECONDS = 10.0
PROBE_SECONDS = 60.0
# cargo-web: the other cargo of Debian 12 is too old for today's registry.
TOOLS = {
    "c++": "g++",
    "cc": "gcc",
    "cmake": "cmake",
    "make": "make",
    "cargo": "cargo-web",
}
# What would change the build, or the processes that build.
_NOT_INHERITED = (
    "CFLAGS",
    "CXXFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "LD_PRELOAD",
    "MAKEFLAGS",
    "CC",
    "CXX",
)


class _CommandError(Exception):
    """A command of a build did not do its work."""


class BuildError(Exception):
    """A peer cannot be built; the text is one line and names the log."""


@dataclass(frozen=True)
class Built:
    """A peer that is built and has been seen to work."""

    library: Path
    version: str


def cached(recipe: Recipe) -> Built | None:
    """The peer as it was built by this very recipe, if it was."""
    folder = CACHE / recipe.folder_name
    try:
        about = json.loads((folder / "about.json").read_text())
    except FileNotFoundError:
        return None
    built = Built(folder / about["library"], about["version"])
    return built if built.library.is_file() else None


def failure_log(recipe: Recipe) -> Path:
    """Where the output of the recipe's last build is, if that failed, and its reason."""
    return CACHE / "failed" / f"{recipe.name}.log"


def why_missing(recipe: Recipe) -> str:
    """Why there is no such peer, in a line."""
    log = failure_log(recipe)
    if not log.exists():
        return "not built"
    reason = log.read_text(errors="replace").splitlines()[-1]
    return f"cannot be built: {reason}; log: {log}"


def ensure_tools() -> None:
    """Installs the tools that builds need; packages.PackagesUnavailable if it cannot."""
    packages.install([it for tool, it in TOOLS.items() if shutil.which(tool) is None])


def build(recipe: Recipe, say: Callable[[str], None]) -> Built:
    """The peer, from the cache or built now; ``say`` is told how it goes on."""
    if (found := cached(recipe)) is not None:
        return found
    with held(CACHE / ".lock", "a build of peers"):
        # Another process may have built it meanwhile.
        if (found := cached(recipe)) is not None:
            return found
        for leftover in CACHE.glob(".building-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=CACHE) as staging:
            _build_in(Path(staging), recipe, say)
    built = cached(recipe)
    assert built is not None
    return built


def _build_in(staging: Path, recipe: Recipe, say: Callable[[str], None]) -> None:
    title = f"{recipe.name} {recipe.version}"
    failed = failure_log(recipe)
    result = staging / "result"
    for folder in ("source", "work", "result"):
        (staging / folder).mkdir()
    started = time.monotonic()
    say(f"building {title} (once)")
    try:
        with (result / "build.log").open("w+", errors="replace") as log:
            commands = _Commands(f"building {title}", say, log, started)
            _make(staging, recipe, commands)
    except (_CommandError, crates.CrateError, RecipeError, OSError) as error:
        failed.parent.mkdir(exist_ok=True)
        log_text = (result / "build.log").read_text(errors="replace")
        failed.write_text(f"{log_text}{error}\n")
        raise BuildError(f"{recipe.name} {why_missing(recipe)}") from error
    failed.unlink(missing_ok=True)
    final = CACHE / recipe.folder_name
    # Only a folder that has lost its library can be there.
    shutil.rmtree(final, ignore_errors=True)
    result.rename(final)
    say(f"built {title} in {time.monotonic() - started:.0f} s")


def _make(staging: Path, recipe: Recipe, commands: "_Commands") -> None:
    source, work, result = (staging / name for name in ("source", "work", "result"))
    package = crates.fetch(recipe, commands.run)
    commands.run(
        ["tar", "-xzf", str(package), "--strip-components=1", "--no-same-owner"], source
    )
    for step in recipe.steps(source, len(os.sched_getaffinity(0))):
        commands.run(step, work)
    library = result / f"lib{recipe.name}.so"
    shutil.copyfile(work / recipe.library, library)
    program = staging / "probe"
    commands.run(
        ["cc", "-O1", "-pthread", "-o", str(program), str(PROBE), "-ldl"], work
    )
    if (wrong := probe(library, program, recipe.variables)) is not None:
        raise _CommandError(wrong)
    crate = f"{recipe.crate} {recipe.crate_version.partition('+')[0]}"
    about = {
        "library": library.name,
        "version": f"{recipe.version} ({crate}, {_compiler()})",
        "recipe": dict(recipe.keys),
    }
    (result / "about.json").write_text(json.dumps(about, indent=2) + "\n")


def _compiler() -> str:
    said = subprocess.run(
        ["cc", "--version"], capture_output=True, text=True, check=True
    )
    line = said.stdout.partition("\n")[0]
    number = re.search(r"\d+(\.\d+)+", line)
    return (
        f"{'clang' if 'clang' in line else 'gcc'} {number[0] if number else 'unknown'}"
    )


@dataclass(frozen=True)
class _Commands:
    """Runs the commands of one build: all output in its log, and not for ever."""

    title: str
    say: Callable[[str], None]
    log: IO[str]
    started: float

    def run(self, command: Sequence[str], folder: Path) -> None:
        self.log.write(f"$ {' '.join(command)}\n")
        self.log.flush()
        begin = self.log.tell()
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={k: v for k, v in os.environ.items() if k not in _NOT_INHERITED},
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=subprocess.STDOUT,
                # So that its children can be ended with it.
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise _CommandError(f"no such program: {command[0]}") from error
        try:
            self._wait(process)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if process.returncode != 0:
            self.log.seek(begin)
            lines = [line.strip() for line in self.log if line.strip()]
            errors = [line for line in lines if re.search(r"\berror\b", line, re.I)]
            said = (errors or lines[-1:] or ["no output"])[0]
            raise _CommandError(f"{command[0]}: {said}")

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        while True:
            try:
                process.wait(PROGRESS_SECONDS)
                return
            except subprocess.TimeoutExpired:
                seconds = time.monotonic() - self.started
                if seconds > LIMIT_SECONDS:
                    raise _CommandError(f"not done after {seconds:.0f} s") from None
                self.say(f"{self.title}: {seconds:.0f} s")


def probe(library: Path, program: Path, variables: Mapping[str, str]) -> str | None:
    """What is wrong with a program under the preloaded library, or None if nothing is."""
    environment = {"PATH": os.defpath, "LD_PRELOAD": str(library), **variables}
    for command in (["true"], [str(program)]):
        try:
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PROBE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{Path(command[0]).name} hangs under it"
        # The loader only complains about what it cannot preload.
        if done.returncode != 0 or done.stderr:
            said = done.stderr.partition("\n")[0]
            return f"{Path(command[0]).name} ends with {done.returncode}: {said}"
    elsewhere = [
        line for line in done.stdout.splitlines() if not line.endswith(f" {library}")
    ]
    return f"not taken over: {', '.join(elsewhere)}" if elsewhere else None
