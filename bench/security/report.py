"""The findings as Markdown and as one HTML page that loads nothing."""

from bench.compare import markdown, page
from bench.security import attacks, distances, tables
from bench.security.suite import Findings

COMMAND = "./allod bench --security --publish"
HEADER = f"<!-- Written by {COMMAND}; not to be changed by hand. -->"
TITLE = "Which allocator catches which defect"


def headline(found: Findings) -> str:
    """What this is, in a sentence or two."""
    has_options = any("+" in peer.name for peer in found.peers)
    options = (
        "with the measures that its name says" if has_options else "without options"
    )
    runs = (
        f"run {found.repeats} times; the worst outcome counts."
        if found.repeats > 1
        else "run once."
    )
    return (
        f"{len(found.cases)} programs with one defect each, under "
        f"{len(found.peers)} allocators, each preloaded as it comes, {options}. "
        f"Every program was {runs}"
    )


def summary(found: Findings) -> list[str]:
    """The tables that answer the question."""
    return [
        *markdown.titled(tables.summary(found)),
        *markdown.titled(tables.families(found)),
    ]


def render_markdown(found: Findings) -> str:
    """The report; its evidence is on the HTML page."""
    every = (
        line
        for family in found.families
        for line in markdown.titled(tables.matrix(found, family), "###")
    )
    lines = [
        f"# {TITLE}",
        "",
        headline(found),
        "",
        *(f"* {note}" for note in found.notes),
        *([""] if found.notes else []),
        *markdown.titled(tables.meaning(found)),
        *summary(found),
        "## Every case",
        "",
        *every,
        *markdown.titled(tables.cases(found)),
        *markdown.titled(tables.setting(found)),
    ]
    return "\n".join(lines).rstrip() + "\n"


DISTANCES_TITLE = "What is noticed at which distance"
DISTANCES_HEADER = HEADER.replace("--security", "--security --distances")


def distances_summary(found: Findings) -> list[str]:
    """The table that answers the question."""
    return markdown.titled(distances.summary(found))


def render_distances(found: Findings) -> str:
    """The report on generated cases."""
    about = [f"* {family}: {text}" for family, text in distances.ABOUT.items()]
    lines = [
        f"# {DISTANCES_TITLE}",
        "",
        f"{len(found.cases)} generated cases, each run {found.repeats} times; the worst outcome "
        "counts. A cell holds how many were noticed of those that changed no memory in use, and "
        "how many changed memory in use without a notice: only the program can know of these.",
        "",
        *about,
        "",
        *(f"* {note}" for note in found.notes),
        *([""] if found.notes else []),
        *distances_summary(found),
    ]
    for peer in found.peers:
        for family in found.families:
            lines += markdown.titled(distances.table(found, peer, family))
    lines += markdown.titled(tables.setting(found))
    return "\n".join(lines).rstrip() + "\n"


ATTACKS_TITLE = "How often attacks succeed"
ATTACKS_HEADER = HEADER.replace("--security", "--security --attacks")


def attacks_summary(found: Findings) -> list[str]:
    """The table that answers the question."""
    return markdown.titled(attacks.summary(found))


def render_attacks(found: Findings) -> str:
    """The report on attacks."""
    about = [f"* {family}: {text}" for family, text in attacks.ABOUT.items()]
    lines = [
        f"# {ATTACKS_TITLE}",
        "",
        f"{len(found.cases)} attacks, each tried {found.repeats} times under each allocator, in "
        "processes of their own. The attacker chooses what is allocated and freed, knows the "
        "program and the allocator, and has one defect. They win when the program calls their "
        "function. "
        "Each attempt stands alone: where processes start again, an attacker tries again.",
        "",
        *about,
        "",
        *(f"* {note}" for note in found.notes),
        *([""] if found.notes else []),
        *attacks_summary(found),
        *markdown.titled(attacks.table(found)),
        *markdown.titled(tables.setting(found)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def render_html(found: Findings) -> str:
    """The report with its evidence."""
    environment = page.templates(page.FOLDER, page.FOLDER.parents[1] / "security")
    return environment.get_template("security.html").render(
        title=TITLE,
        headline=headline(found),
        notes=found.notes,
        meaning=tables.meaning(found),
        summary=tables.summary(found),
        families=tables.families(found),
        matrices=[tables.matrix(found, family) for family in found.families],
        evidence=[tables.evidence(found, peer) for peer in found.peers],
        cases=tables.cases(found),
        setting=tables.setting(found),
        style=(page.FOLDER / "page.css").read_text(),
    )
