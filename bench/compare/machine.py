"""What the results were measured on."""

import os
import platform
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """The facts that a reader needs to judge or repeat the figures."""

    cpu: str
    cores: int
    memory_mib: int
    page_size: int
    kernel: str
    system: str
    libc: str
    transparent_huge_pages: str
    governor: str
    load_at_start: float

    def is_like(self, other: "Machine") -> bool:
        """Can figures of both stand beside each other?"""
        return replace(self, memory_mib=0, load_at_start=0.0) == replace(
            other, memory_mib=0, load_at_start=0.0
        )


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _field(path: str, name: str) -> str:
    for line in _read(path).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _huge_pages() -> str:
    setting = _read("/sys/kernel/mm/transparent_hugepage/enabled")
    return setting.partition("[")[2].partition("]")[0] or "not available"


def describe() -> Machine:
    """This machine, now."""
    try:
        system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        system = platform.system()
    return Machine(
        cpu=_field("/proc/cpuinfo", "model name") or platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory_mib=int((_field("/proc/meminfo", "MemTotal") or "0 kB").split()[0])
        // 1024,
        page_size=os.sysconf("SC_PAGESIZE"),
        kernel=f"{platform.system()} {platform.release()} {platform.machine()}",
        system=system,
        libc=" ".join(platform.libc_ver()),
        transparent_huge_pages=_huge_pages(),
        governor=_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
        or "not available",
        load_at_start=os.getloadavg()[0],
    )
