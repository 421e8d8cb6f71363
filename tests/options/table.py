"""What each option accepts and what it does not."""

from __future__ import annotations

from dataclasses import dataclass

YES = ("1", "yes", "true", "on")


NO = ("0", "no", "false", "off")


NOT_BOOLEAN = ("", "2", "-1", "YES", "y", " 1", "1 ", "01")


NOT_A_PATH = ("", "x" * 4096)


NOT_A_SIZE = (
    "",
    "-1",
    "K",
    "iB",
    "1X",
    "1 K",
    "1.5M",
    "0x1000",
    "1KK",
    "64MiBs",
    "10iB",
    "1e6",
    "9999999999999999999",
    "17179869184G",
)


@dataclass(frozen=True)
class Option:
    """What the list of options says about one, and values of both kinds."""

    values: str
    default: str
    accepted: tuple[str, ...]
    malformed: tuple[str, ...]
    at_start_only: bool = False


OPTIONS = {
    "HELP": Option("0, 1", "0", YES + NO, NOT_BOOLEAN, at_start_only=True),
    "VERBOSE": Option(
        "0 to 2", "0", ("0", "1", "2"), ("", "3", "-1", "yes", "1.0", "0x1")
    ),
    "SHOW_STATS": Option(
        "0, 1, text, json",
        "0",
        ("0", "1", "text", "json"),
        ("", "2", "xml", "TEXT", "text,json", "jsn"),
    ),
    "STATS_FILE": Option(
        "a path", "standard error", ("/dev/null", "x"), ("", "x" * 4096)
    ),
    "SHOW_ERRORS": Option("0, 1", "1", YES + NO, NOT_BOOLEAN),
    "ABORT_ON_ERROR": Option("0, 1", "1", YES + NO, NOT_BOOLEAN),
    "REPORT_FD": Option(
        "an open file descriptor",
        "none",
        ("0", "2"),
        ("", "-1", "stderr", "2147483647", "2147483648"),
    ),
    "HARDENED": Option(
        "all, balanced, light, none, canary, neighbours, zero, written, quarantine,"
        " shuffle, guards, empty, origin, addresses, positions, sweep, tags, history",
        "all",
        (
            *("all", "none", "canary", "zero,written", "all,-guards", "-guards,sweep"),
            *("light", "balanced", "balanced,shuffle", "light,-origin"),
        ),
        (
            *("", "sorcery", "canary,sorcery", "-", "all,", ",all", "canary,,zero"),
            *("-guards,all", "canary,none", "all,all", "canary,light", "-light"),
            "balancd",
            *("guard", "all,-quarentine", "canary,neigbours"),
        ),
        at_start_only=True,
    ),
    "FOREIGN_FREE": Option(
        "ignore, report",
        "ignore",
        ("ignore", "report"),
        ("", "0", "1", "abort", "Report", "reports"),
    ),
    "DEEPBIND": Option(
        "ignore, keep", "ignore", ("ignore", "keep"), ("", "0", "1", "Keep", "kept")
    ),
    "PURGE_DELAY": Option(
        "milliseconds, 0 or -1",
        "500",
        ("-1", "0", "1", "500", "2147483647"),
        ("", "-2", "2147483648", "1s", "500ms", "1K", "--1", "-", "+1"),
    ),
    "PURGE_BUDGET": Option(
        "bytes", "64M", ("0", "4096", "1k", "1K", "1KB", "2MiB", "1G"), NOT_A_SIZE
    ),
    "PURGE_THREAD": Option("0, 1", "1", YES + NO, NOT_BOOLEAN),
    "MOVE_PAGES": Option("0, 1", "1", YES + NO, NOT_BOOLEAN),
    "HUGE_PAGES": Option(
        "bytes, or never",
        "16M",
        ("never", "0", "4096", "64M", "2MiB", "1G"),
        (*NOT_A_SIZE, "Never", "always"),
        at_start_only=True,
    ),
    "CACHES": Option(
        "mixed, thread, processor",
        "mixed",
        ("mixed", "thread", "processor"),
        ("", "0", "threads", "Mixed", "mixed,thread"),
        at_start_only=True,
    ),
    "PROCESSORS": Option(
        "1 to 1024",
        "those of the process",
        ("1", "2", "1024"),
        ("", "0", "-1", "1025", "2.0", "many"),
        at_start_only=True,
    ),
    "NODES": Option(
        "1 to 16",
        "those of the system",
        ("1", "2", "16"),
        ("", "0", "-1", "17", "2.0", "many"),
        at_start_only=True,
    ),
    "PROFILE": Option(
        "0, 1, bytes",
        "0",
        ("0", "1", "4096", "512K"),
        NOT_A_SIZE,
        at_start_only=True,
    ),
    "PROFILE_FILE": Option("a path", "none", ("/dev/null", "x"), NOT_A_PATH),
    "PROFILE_PEAKS": Option("0, 1", "0", YES + NO, NOT_BOOLEAN),
    "PROFILE_SIGNAL": Option(
        "USR1, USR2, PROF or a number",
        "none",
        ("USR1", "USR2", "PROF", "1", "64"),
        # Those of errors, those of the C library, and that which stops threads.
        ("", "TERM", "0", "65", "9", "19")
        + ("4", "5", "7", "8", "11", "31", "32", "33", "63"),
        at_start_only=True,
    ),
    "LEAKS": Option("0, 1", "0", YES + NO, NOT_BOOLEAN, at_start_only=True),
    "LEAKS_FILE": Option("a path", "standard error", ("/dev/null", "x"), NOT_A_PATH),
    "GUARD_SAMPLE": Option(
        "0, on, a number",
        "0",
        ("0", "on", "1", "5000"),
        ("", "yes", "-1", "5K"),
        at_start_only=True,
    ),
    "GUARD_SLOTS": Option(
        "1 to 4096",
        "192",
        ("1", "192", "4096"),
        ("", "0", "4097", "-1", "many"),
        at_start_only=True,
    ),
    "POPULATE": Option(
        "off, adaptive, all",
        "adaptive",
        ("off", "adaptive", "all"),
        ("", "0", "1", "none", "All", "adaptiv"),
    ),
    "REGION_SIZE": Option(
        "bytes, 1M to 64G",
        "64M",
        ("1M", "1048576", "64M", "64G", "65536MiB"),
        (*NOT_A_SIZE, "0", "1048575", "1023K", "65G"),
        at_start_only=True,
    ),
    # These are read by liballod-live.so; alone, they mean nothing.
    "LIVE": Option("address:port, or 1", "none", ("1",), (), at_start_only=True),
    "LIVE_TOKEN": Option(
        "16 characters or more", "random", ("secret-of-a-test",), (), at_start_only=True
    ),
    "LIVE_LINK": Option("a path", "standard error", ("x",), (), at_start_only=True),
    "LIVE_HOSTS": Option(
        "names, by commas", "none", ("a,b:1",), (), at_start_only=True
    ),
    "LIVE_WRAPPERS": Option(
        "names, by commas", "none", ("pool_take,arena_*",), (), at_start_only=True
    ),
    "LIVE_PUSH": Option(
        "http://address:port/path", "none", ("127.0.0.1:4318",), (), at_start_only=True
    ),
    "LIVE_PUSH_SECONDS": Option("seconds", "60", ("1",), (), at_start_only=True),
    "LIVE_ONLY": Option("a process id", "none", ("1",), (), at_start_only=True),
    "LIVE_CHILDREN": Option("0, 1", "0", ("0", "1"), (), at_start_only=True),
    "ATTACH": Option("0, 1", "1", YES + NO, NOT_BOOLEAN, at_start_only=True),
    "MAGAZINE_BYTES": Option(
        "bytes, 0 to 16M",
        "256K",
        ("0", "1", "256KiB", "16M"),
        (*NOT_A_SIZE, "16777217", "17M"),
    ),
}


# Of the malformed values, those that are near a word.
MEANT = {
    ("SHOW_STATS", "TEXT"): "text",
    ("SHOW_STATS", "jsn"): "json",
    ("HARDENED", "guard"): "guards",
    ("HARDENED", "all,-quarentine"): "quarantine",
    ("HARDENED", "canary,neigbours"): "neighbours",
    ("HARDENED", "balancd"): "balanced",
    ("FOREIGN_FREE", "Report"): "report",
    ("FOREIGN_FREE", "reports"): "report",
    ("DEEPBIND", "Keep"): "keep",
    ("HUGE_PAGES", "Never"): "never",
    ("CACHES", "threads"): "thread",
    ("CACHES", "Mixed"): "mixed",
    ("POPULATE", "All"): "all",
    ("POPULATE", "adaptiv"): "adaptive",
}
