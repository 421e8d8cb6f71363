"""Recipe for Conan 2: conan create packaging/conan"""

from __future__ import annotations

import re
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, cmake_layout
from conan.tools.files import copy, load

REPOSITORY = "../.."
# What a build and an installation read.
EXPORTED = (
    *("CMakeLists.txt", "LICENSE", "CHANGELOG.md", "cmake/*", "include/*", "src/*"),
    *("docs/man/*", "examples/*", "tools/allod/*", "tools/packages/*"),
)


class Allod(ConanFile):
    """The libraries, static and shared, their headers, and the CMake package that names them."""

    name = "allod"
    description = "A general-purpose memory allocator for C and C++ programs"
    license = "MIT"
    topics = ("allocator", "malloc", "memory")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    # Both kinds are in the package; this is what generators other than CMake's link.
    options = {"shared": [True, False]}
    default_options = {"shared": True}
    generators = ("CMakeToolchain",)

    def set_version(self) -> None:
        """From the one place where it is written down."""
        header = load(self, Path(self.recipe_folder, REPOSITORY, "include", "allod.h"))
        found = re.search(r'#define ALLOD_VERSION "(.+)"', header)
        assert found is not None
        self.version = found[1]

    def export_sources(self) -> None:
        root = Path(self.recipe_folder, REPOSITORY)
        for pattern in EXPORTED:
            copy(self, pattern, src=root, dst=self.export_sources_folder)

    def validate(self) -> None:
        where = (str(self.settings.os), str(self.settings.arch))
        if where not in {("Linux", "x86_64"), ("Linux", "armv8")}:
            raise ConanInvalidConfiguration("Allod runs on Linux, on x86_64 or armv8")

    def package_id(self) -> None:
        # The libraries use no C++ runtime, and are compiled alike for all types.
        del self.info.settings.build_type
        del self.info.settings.compiler
        del self.info.options.shared

    def layout(self) -> None:
        cmake_layout(self)

    def build(self) -> None:
        cmake = CMake(self)
        # Optimised as it is measured; without the live page, which npm bundles from the network.
        cmake.configure(
            variables={"CMAKE_BUILD_TYPE": "RelWithDebInfo", "ALLOD_NODE": "OFF"}
        )
        cmake.build(target="products")

    def package(self) -> None:
        CMake(self).install()
        copy(
            self,
            "LICENSE",
            src=self.source_folder,
            dst=Path(self.package_folder, "licenses"),
        )

    def package_info(self) -> None:
        # The package's own allodConfig.cmake has all targets.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/allod"]
        self.cpp_info.set_property("pkg_config_name", "allod")
        if self.options.shared:
            self.cpp_info.libs = ["allod"]
        else:
            # First on the link line: it replaces the allocator of the whole program.
            self.cpp_info.exelinkflags = [
                str(Path(self.package_folder, "lib", "allod.o"))
            ]
            self.cpp_info.system_libs = ["pthread"]
