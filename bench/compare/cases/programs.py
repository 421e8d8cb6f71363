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


def _command(
    name: str,
    about: str,
    source: str,
    *,
    by_default: bool = True,
    in_quick: bool = False,
) -> Case:
    return _case(
        *(name, about, source),
        program="commands",
        params={"program": name},
        by_default=by_default,
        in_quick=in_quick,
    )


_SERVERS_AND_DATABASES: tuple[Case, ...] = (
    _case(
        "redis",
        "redis-benchmark with twelve commands against a filled database",
        f"redis-benchmark (Sanfilippo, 2009); {_SUITE}",
        threads=2,
        in_quick=True,
    ),
    _case(
        "memcached",
        "four clients that send requests without waiting; a hundred calls of malloc",
        "the text protocol of memcached (Fitzpatrick, 2003)",
        threads=4,
        by_default=False,
    ),
    _case(
        "mosquitto",
        "four clients publish messages that the broker keeps, and get them back",
        "Mosquitto (Light, 2009)",
    ),
    _case(
        "mariadb",
        "four clients insert, change and ask for rows in memory",
        "MariaDB (Widenius and others, 2009)",
        threads=4,
    ),
    _case(
        "sqlite",
        "the shell inserts, selects, updates and deletes in memory",
        "in the manner of speedtest1 (Hipp and others)",
        in_quick=True,
    ),
    _case(
        "rocksdb",
        "db_bench fills, overwrites, reads and scans a database in memory",
        "db_bench of RocksDB (Facebook, 2012)",
        threads=2,
    ),
    _case(
        "duckdb",
        "tables in columns are joined, grouped and sorted in memory",
        "DuckDB (Raasveldt and Muehleisen, 2019)",
    ),
)

_LANGUAGES: tuple[Case, ...] = (
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
        "ruby",
        "objects, JSON, text, hashes and compiled methods",
        "Ruby (Matsumoto, 1995)",
    ),
    _command(
        "perl",
        "hashes of hashes, texts taken apart, sorts and closures",
        "Perl (Wall, 1987)",
    ),
    _command(
        "php",
        "objects, arrays, templates and JSON; every block from malloc",
        "PHP (Lerdorf, 1995)",
        in_quick=True,
    ),
    _command(
        "r",
        "a data frame is modelled, split, sorted and merged",
        "R (Ihaka and Gentleman, 1993)",
    ),
    _command(
        "prolog",
        "facts are added, found and removed; terms and texts",
        "SWI-Prolog (Wielemaker, 1987)",
    ),
    _command(
        "gawk",
        "words of a long text are counted and indexed",
        "GNU awk (Rubin, Robbins and others, 1986)",
    ),
    _command(
        "pandas",
        "a table of 600,000 rows is joined, grouped and sorted",
        "pandas (McKinney, 2008)",
    ),
    _command(
        "jq",
        "a document of JSON is read whole, grouped and summed",
        "jq (Dolan, 2012)",
    ),
)

_COMPILERS_AND_PROVERS: tuple[Case, ...] = (
    _case(
        "gcc",
        "the C++ compiler proper on one large file of templates, -O1",
        "GCC (Stallman and others, 1987)",
    ),
    _command(
        "clang",
        "the C++ compiler proper on one file of templates, -O1",
        "clang (Lattner and others, 2007)",
        in_quick=True,
    ),
    _command(
        "rustc",
        "a library of traits, generics and closures, not optimised",
        "rustc (Hoare and others, 2010)",
        # It frees what operator new gave; the hardened library ends it for that.
        by_default=False,
    ),
    _command(
        "gold",
        "40,000 functions with debugging information are linked, unneeded ones left out",
        "gold (Taylor, 2008)",
    ),
    _command(
        "ctags",
        "60,000 functions are indexed for an editor",
        "ctags (Hiebert, 1996)",
    ),
    _case(
        "git",
        "a repository of 1,500 commits is packed anew by one thread",
        "git repack -a -d -f (Torvalds, Hamano and others, 2005)",
    ),
    _case(
        "z3",
        "satisfiability of clauses, bit vectors, arrays, numbers and quantifiers",
        f"Z3 (de Moura and Bjorner, 2008); {_SUITE}",
        in_quick=True,
    ),
    _command(
        "cvc5",
        "contradictions in terms and in clauses, with their proofs",
        "cvc5 (Barbosa and others, 2022)",
    ),
    _command(
        "gringo",
        "a logic program of colours and paths is grounded",
        "gringo (Gebser, Kaminski, Schaub and others, 2007)",
    ),
)

_DOCUMENTS_AND_MEDIA: tuple[Case, ...] = (
    _case(
        "ghostscript",
        "pages of text, curves, gradients and images become pixels",
        f"Ghostscript (Deutsch, 1988); {_SUITE}",
    ),
    _command(
        "pdf",
        "poppler draws the pages of a document",
        "poppler (Hogsberg and others, 2005)",
    ),
    _command(
        "troff",
        "a manual of 3,000 sections is typeset",
        "groff (Clark, 1990)",
    ),
    _command(
        "xslt",
        "an XML document is read whole, sorted and turned into HTML",
        "libxslt (Veillard, 2001)",
        in_quick=True,
    ),
    _command(
        "svg",
        "librsvg draws a picture with gradients and filters",
        "librsvg (Mena and others, 2001)",
    ),
    _command(
        "inkscape",
        "shapes become paths and are united, without a display",
        "Inkscape (2003)",
    ),
    _command(
        "imagemagick",
        "pictures are enlarged, turned, embossed and joined",
        "ImageMagick (Cristy, 1987)",
    ),
    _command(
        "tesseract",
        "a scanned page is read",
        "Tesseract (Smith, 1985)",
    ),
)

_SCIENCE_AND_DESIGN: tuple[Case, ...] = (
    _command(
        "gdal",
        "ogr2ogr simplifies a map of 8,000 parcels",
        "GDAL (Warmerdam, 1998)",
    ),
    _command(
        "yosys",
        "processors in Verilog become one flat netlist",
        "Yosys (Wolf, 2012)",
    ),
    _command(
        "openscad",
        "a solid with holes in exact arithmetic",
        "OpenSCAD (Wolf and Kintel, 2010) with CGAL",
    ),
    _command(
        "ngspice",
        "a chain of 800 amplifiers is simulated",
        "ngspice, after SPICE (Nagel and Pederson, 1973)",
    ),
)

CASES: tuple[Case, ...] = (
    *_SERVERS_AND_DATABASES,
    *_LANGUAGES,
    *_COMPILERS_AND_PROVERS,
    *_DOCUMENTS_AND_MEDIA,
    *_SCIENCE_AND_DESIGN,
)
