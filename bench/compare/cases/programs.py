"""Real programs that do real work."""

from collections.abc import Mapping

from bench.compare.cases.case import Case

_SUITE = "mimalloc-bench (Leijen, Zorn and de Moura, 2019) measures it as well"
_GAME = "the Computer Language Benchmarks Game"


def _case(
    name: str,
    about: str,
    source: str,
    *,
    program: str = "",
    params: Mapping[str, int | str] | None = None,
    threads: int = 1,
    by_default: bool = True,
    in_quick: bool = False,
) -> Case:
    return Case(
        name,
        program or name,
        about,
        params=params or {},
        threads=threads,
        by_default=by_default,
        in_quick=in_quick,
        group="real programs",
        source=source,
        script=True,
    )


def _python(
    which: str, about: str, source: str, *, pymalloc: int = 0, in_quick: bool = False
) -> Case:
    return _case(
        f"python-{which}{'-pools' if pymalloc else ''}",
        about,
        source,
        program="python",
        params={"program": which, "pymalloc": pymalloc},
        by_default=not pymalloc,
        in_quick=in_quick,
    )


CASES: tuple[Case, ...] = (
    _case(
        "redis",
        "redis-benchmark with twelve commands against a filled database",
        f"redis-benchmark (Sanfilippo, 2009); {_SUITE}",
        threads=2,
        in_quick=True,
    ),
    _case(
        "memcached",
        "four clients that send requests without waiting, and reconnect",
        "the text protocol of memcached (Fitzpatrick, 2003)",
        threads=4,
    ),
    _case(
        "lua",
        "a script that compiles sources, builds tables, strings and closures",
        "Lua (Ierusalimschy, de Figueiredo and Celes, 1993)",
        in_quick=True,
    ),
    _python(
        "objects",
        "tasks that send each other packets; every object from malloc",
        "after the Richards benchmark (Martin Richards, Cambridge)",
        in_quick=True,
    ),
    _python(
        "trees",
        "short-lived binary trees beside a large one; every object from malloc",
        "after GCBench (Ellis, Kovac and Boehm)",
    ),
    _python(
        "json",
        "nested documents written and read as JSON; every object from malloc",
        "after json_dumps and json_loads of pyperformance (Stinner and others)",
    ),
    _python(
        "regex",
        "matches counted and replaced in a long text; every object from malloc",
        f"after regex-redux of {_GAME}",
    ),
    _python(
        "dicts",
        "dictionaries of text that grow and shrink; every object from malloc",
        "written for this suite",
    ),
    _python(
        "digits",
        "digits of pi with ever longer numbers; every object from malloc",
        f"after pidigits of {_GAME}; the spigot is of Gibbons (2006)",
    ),
    _python(
        "objects",
        "the same packets with small objects in Python's own pools, as installed",
        "after the Richards benchmark (Martin Richards, Cambridge)",
        pymalloc=1,
    ),
    _case(
        "gcc",
        "the C++ compiler proper on one large file of templates, -O1",
        "GCC (Stallman and others, 1987)",
    ),
    _case(
        "sqlite",
        "the shell inserts, selects, updates and deletes in memory",
        "in the manner of speedtest1 (Hipp and others)",
        in_quick=True,
    ),
    _case(
        "z3",
        "satisfiability of clauses, bit vectors, arrays, numbers and quantifiers",
        f"Z3 (de Moura and Bjorner, 2008); {_SUITE}",
        in_quick=True,
    ),
    _case(
        "ruby",
        "objects, JSON, text, hashes and compiled methods",
        "Ruby (Matsumoto, 1995)",
    ),
    _case(
        "ghostscript",
        "pages of text, curves, gradients and images become pixels",
        f"Ghostscript (Deutsch, 1988); {_SUITE}",
    ),
    _case(
        "rocksdb",
        "db_bench fills, overwrites, reads and scans a database in memory",
        "db_bench of RocksDB (Facebook, 2012)",
        threads=2,
    ),
    _case(
        "git",
        "a repository of 1,500 commits is packed anew by one thread",
        "git repack -a -d -f (Torvalds, Hamano and others, 2005)",
    ),
)
