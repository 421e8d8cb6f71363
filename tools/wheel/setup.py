"""Names the platform of the wheel: its binaries are no extensions of an interpreter."""

import os

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.dist import Distribution


class Binaries(Distribution):  # type: ignore[misc]
    """Belongs where files of a platform do."""

    def has_ext_modules(self) -> bool:
        return True


class Wheel(bdist_wheel):  # type: ignore[misc]
    """For any Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", os.environ["ALLOD_WHEEL_PLATFORM"]


setup(distclass=Binaries, cmdclass={"bdist_wheel": Wheel})
