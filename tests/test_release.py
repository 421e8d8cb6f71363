"""What is handed out runs on other machines than this one."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from checks import budgets, versions
from workshop.release import MOST_BYTES, make_wheel
from workshop.systems import LIBRARIES, PROGRAMS, SYSTEMS
from workshop.trying import try_wheel

pytestmark = pytest.mark.slow

HERE = SYSTEMS["x86-64"]
LOSES = """
#include <stdlib.h>
static __attribute__((noinline)) void *lose(int size) {
  void *volatile lost = malloc(size);
  return lost;
}
int main(void) {
  for (int i = 0; i < 10; ++i) lose(100);
  return 0;
}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_wheel(HERE, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def package(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked as an installation does."""
    folder = tmp_path_factory.mktemp("package")
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            path = Path(archive.extract(entry, folder))
            path.chmod(entry.external_attr >> 16 & 0o777)
    return folder / "allod"


def test_the_wheel_is_small_and_names_its_platform(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-manylinux_2_17_x86_64.whl")
    assert wheel.stat().st_size < MOST_BYTES


def test_all_that_is_in_it_loads_with_glibc_2_17(package: Path) -> None:
    files = [*(package / "lib").iterdir(), *(package / "bin").iterdir()]
    assert {path.name for path in files} == {*LIBRARIES, *PROGRAMS}
    assert [text for path in files for text in versions.complaints(path)] == []


def test_fast_paths_in_it_keep_their_budgets(package: Path) -> None:
    rules = budgets.read_budgets(budgets.BUDGETS)
    found = budgets.measure(package / "lib" / "liballod.so", rules)
    assert {finding.symbol for finding in found} == rules.keys()
    assert [text for finding in found for text in finding.complaints] == []


def test_the_same_wheel_is_made_again(wheel: Path, tmp_path: Path) -> None:
    assert make_wheel(HERE, tmp_path).read_bytes() == wheel.read_bytes()


def test_its_commands_run_in_a_new_environment(wheel: Path) -> None:
    assert "commands ran" in try_wheel(wheel)


def test_the_symbolizer_names_functions_and_lines(
    package: Path, tmp_path: Path
) -> None:
    source = tmp_path / "loses.c"
    source.write_text(LOSES)
    program = tmp_path / "loses"
    subprocess.run(["cc", "-g", "-o", program, source], check=True)
    names = subprocess.run(
        ["nm", program], capture_output=True, text=True, check=True
    ).stdout
    (place,) = (line.split()[0] for line in names.splitlines() if line.endswith("lose"))
    done = subprocess.run(
        [package / "bin" / "allod-symbolizer", f"--obj={program}"],
        input=f"0x{place}\nzero\n",
        capture_output=True,
        text=True,
        check=True,
    )
    first, second = done.stdout.splitlines()
    assert f'"FunctionName":"lose","FileName":"{source}","Line":3' in first
    assert second == '{"Symbol":[]}'


def test_a_program_on_allod_reads_its_own_heap(package: Path) -> None:
    code = (
        "import allod; heap = allod.heap(); heap.start_profile(1); heap.stop_profile();"
        " print(heap['version'], allod.library('hardened')); print(heap.open_page())"
    )
    # The interpreter of the tests has what the package depends on.
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    done = subprocess.run(
        [sys.executable, "-m", "allod", "run", "--", sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures, page = done.stdout.splitlines()
    assert figures.endswith(str(package / "lib" / "liballod-hardened.so"))
    assert page.startswith("http://127.0.0.1:")
