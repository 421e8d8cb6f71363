"""What is written of a trace: its summary, and the plots that are asked for."""

from __future__ import annotations

import json
from pathlib import Path

import click

from allod import supplies
from allod.console import say, shown
from allod.files import write_whole
from allod.trace.summary import summary
from allod.trace.tool import read_info


def show(trace: Path, *, html: Path | None, folder: Path | None, as_json: bool) -> None:
    """Prints a summary, and writes the plots that are asked for."""
    info = read_info(trace)
    if html is not None or folder is not None:
        supplies.current().python_packages("plots")
        from allod.trace.plots import page, write_folder

        if html is not None:
            write_whole(html, page(trace, info))
            say(f"wrote {shown(html)}")
        if folder is not None:
            write_folder(folder, trace, info)
            say(f"wrote {shown(folder)}")
    click.echo(json.dumps(info) if as_json else summary(trace, info))
