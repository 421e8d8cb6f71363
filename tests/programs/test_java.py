"""The Java compiler and virtual machine."""

from __future__ import annotations

import pytest

from .launcher import WORKLOADS, DebianPackages, Launcher, Sides, digests


@pytest.mark.slow
def test_java_compiles_and_runs_threads_and_direct_buffers_alike(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("default-jdk-headless")

    def work(launcher: Launcher) -> tuple[str, dict[str, str]]:
        launcher.run("javac", "-d", ".", WORKLOADS / "Churn.java")
        options = ("-Xmx512m", "-XX:+UseParallelGC", "-XX:MaxDirectMemorySize=256m")
        finished = launcher.run("java", *options, "-cp", ".", "Churn")
        launcher.check_allocator_of("javac", "java")
        return finished.text, digests(launcher.directory, "*.class")

    printed, _ = sides.agree_on(work)
    assert printed.endswith("short threads 400\n")
