"""A program that links each kind of the library."""

from __future__ import annotations

import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, cmake_layout


class Consumer(ConanFile):
    """Each program says whose malloc it has."""

    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeToolchain", "CMakeDeps"

    def requirements(self) -> None:
        self.requires(self.tested_reference_str)

    def layout(self) -> None:
        cmake_layout(self)

    def build(self) -> None:
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self) -> None:
        if not can_run(self):
            return
        for program in ("with_shared", "with_static", "with_hardened"):
            self.run(os.path.join(self.cpp.build.bindir, program), env="conanrun")
