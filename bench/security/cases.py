"""The defects that the programs know, each with the blocks that it is tried on."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

# Below the page, a page, and beyond what most allocators keep in slabs.
SIZES = {"small": 48, "page": 4096, "large": 256 * 1024}
CALL, ACCESS = "call", "access"


@dataclass(frozen=True)
class Case:
    """One defect with blocks of one size; ``kind`` says whose operation it is.

    ``size`` is empty where it makes no difference.
    """

    family: str
    name: str
    size: str
    kind: str
    about: str

    @property
    def title(self) -> str:
        return f"{self.name}, {self.size}" if self.size else self.name

    @property
    def key(self) -> str:
        return f"{self.family}: {self.title}"

    def command(self, program: Path) -> list[str]:
        size = SIZES[self.size or "small"]
        return [str(program), self.family, self.name, str(size)]


def load(program: Path) -> list[Case]:
    """All cases, as the program lists them."""
    listed = subprocess.run(
        [str(program), "--list"], capture_output=True, text=True, check=True
    )
    return [
        Case(family, name, size, kind, about)
        for line in listed.stdout.splitlines()
        for family, name, kind, sized, about in [line.split("\t")]
        for size in (SIZES if sized == "sized" else [""])
    ]
