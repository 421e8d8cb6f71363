"""Profiles in the formats of other tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allod import supplies
from allod.console import Failure
from allod.files import deliver, write_whole

if TYPE_CHECKING:
    from allod.profile.model import Frame, Profile

KINDS = {"live": "in use", "peak": "at the peak", "total": "ever allocated"}
BINARY = {"pprof", "html", "otlp"}
SPEEDSCOPE = "https://www.speedscope.app/file-format-schema.json"


def export(source: str, form: str, kind: str, output: Path | None) -> None:
    """Writes a profile in one of FORMATS, to standard output unless a file is named."""
    supplies.current().python_packages("flames" if form == "html" else "profiles")
    from allod.profile import compare, flame, otlp, pprof

    if output is None and form in BINARY:
        raise Failure(f"{form} needs --output FILE")
    profile = compare.read(source)
    name = Path(compare.place_of(source)).name
    if output is not None and form == "pprof":
        pprof.write(profile, output)
    elif output is not None and form == "otlp":
        write_whole(output, otlp.encode(profile, name))
    elif output is not None and form == "html":
        flame.write_page(profile, output, f"Heap of {name}")
    elif form == "folded":
        deliver(flame.folded(profile, kind), output)
    else:
        told = TEXTS[form](profile, name)
        deliver(json.dumps(told, separators=(",", ":")) + "\n", output)


class _Frames:
    """All frames, each once, by their index."""

    def __init__(self) -> None:
        self.known: dict[Frame, int] = {}

    def index(self, frame: Frame) -> int:
        return self.known.setdefault(frame, len(self.known))


def speedscope(profile: Profile, name: str) -> dict[str, Any]:
    """For https://www.speedscope.app: a profile for each kind."""
    frames = _Frames()
    profiles = []
    for kind, words in KINDS.items():
        samples, weights = [], []
        for stack in profile.stacks:
            size = getattr(stack, kind).bytes
            if size <= 0:
                continue
            # Outermost first.
            named = [frames.index(frame) for frame in stack.names()]
            samples.append(named[::-1])
            weights.append(size)
        profiles.append(
            {
                "type": "sampled",
                "name": f"{name}, {words}",
                "unit": "bytes",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
        )
    return {
        "$schema": SPEEDSCOPE,
        "name": name,
        "exporter": "allod",
        "activeProfileIndex": 0,
        "shared": {"frames": [_speedscope_frame(each) for each in frames.known]},
        "profiles": profiles,
    }


def _speedscope_frame(frame: Frame) -> dict[str, str | int]:
    told: dict[str, str | int] = {"name": frame.function}
    if frame.file:
        told["file"] = frame.file
    if frame.line:
        told["line"] = frame.line
    return told


def dhat(profile: Profile, name: str) -> dict[str, Any]:
    """For https://profiler.firefox.com, and the viewer of valgrind's DHAT."""
    frames = _Frames()
    points = []
    for stack in profile.stacks:
        most = max(stack.peak, stack.live, key=lambda sums: (sums.bytes, sums.blocks))
        points.append(
            {
                "tb": max(stack.total.bytes, most.bytes),
                "tbk": max(stack.total.blocks, most.blocks),
                "tl": stack.lifetime_ms
                * max(stack.total.blocks - stack.live.blocks, 0),
                "mb": most.bytes,
                "mbk": most.blocks,
                "gb": stack.peak.bytes,
                "gbk": stack.peak.blocks,
                "eb": stack.live.bytes,
                "ebk": stack.live.blocks,
                # Frame 0 is the root.
                "fs": [frames.index(frame) + 1 for frame in stack.names()],
            }
        )
    return {
        "dhatFileVersion": 2,
        "mode": "heap",
        "verb": "Allocated",
        "bklt": True,
        "bkacc": False,
        "tu": "ms",
        "Mtu": "ks",
        "tuth": 1,
        "cmd": name,
        "pid": profile.process,
        "tg": 0,
        "te": profile.since_ms,
        "pps": points,
        "ftbl": ["[root]", *map(_dhat_frame, enumerate(frames.known, 1))],
    }


def _dhat_frame(numbered: tuple[int, Frame]) -> str:
    # Readers take frames of one address for one.
    number, frame = numbered
    place = (
        f"{frame.file}:{frame.line}" if frame.file else f"in {frame.module or '???'}"
    )
    return f"{number:#x}: {frame.function} ({place})"


TEXTS: dict[str, Callable[[Profile, str], dict[str, Any]]] = {
    "speedscope": speedscope,
    "dhat": dhat,
}
