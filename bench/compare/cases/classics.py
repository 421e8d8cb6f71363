"""Workloads that allocators have been compared with for decades."""

from bench.compare.cases.case import Case

_ZORN = "Zorn and Grunwald, Six Allocation-intensive C Programs, 1992"
_HOARD = "Hoard (Berger, McKinley, Blumofe and Wilson, ASPLOS 2000)"
_LARSON = "Larson and Krishnan, ISMM 1998"
_SMARTHEAP = "sh6bench and sh8bench (MicroQuill, SmartHeap)"

_SMALL = (
    Case(
        "cfrac",
        "cfrac",
        "factors numbers of 34 digits; every intermediate value is a tiny block",
        quick={"digits": 15},
        group="small objects",
        source=f"{_ZORN}; the method: Morrison and Brillhart, 1975",
    ),
    Case(
        "logic",
        "logic",
        "minimises sums of products, which are sets of tiny blocks",
        quick={"rounds": 50},
        group="small objects",
        source=f"{_ZORN}; the method: espresso (Brayton et al., 1984)",
    ),
    Case(
        "mixed-order",
        "mixed_order",
        "one thread, mixed sizes up to 1,000 B, freed in mixed orders",
        quick={"rounds": 800},
        group="small objects",
        source=_SMARTHEAP,
    ),
    Case(
        "simple",
        "simple",
        "one thread, batches of 25 to 1,600 blocks of 256 B, freed in order",
        quick={"rounds": 700},
        group="small objects",
        source="glibc, bench-malloc-simple (Dijkstra, 2018)",
    ),
)

_THREADS = (
    Case(
        "larson",
        "larson",
        "two threads replace random objects that short-lived threads inherit",
        quick={"lives": 70},
        threads=2,
        group="threads",
        source=_LARSON,
    ),
    Case(
        "larson-sized",
        "larson",
        "the same, and operator delete is told the size",
        params={"sized": 1},
        quick={"lives": 70},
        threads=2,
        in_quick=False,
        group="threads",
        source=_LARSON,
    ),
    Case(
        "xmalloc",
        "xmalloc",
        "one thread allocates, another frees, through a stack behind a lock",
        quick={"batches": 1_500},
        threads=2,
        group="threads",
        source="Lever and Boreham, USENIX 2000; SuperMalloc (Kuszmaul, ISMM 2015)",
    ),
    Case(
        "cache-scratch",
        "scratch",
        "two threads write blocks of 8 B; the first were neighbours",
        params={"handed": 1},
        quick={"blocks": 300_000},
        threads=2,
        group="threads",
        source=f"passive false sharing: {_HOARD}",
    ),
    Case(
        "cache-thrash",
        "scratch",
        "two threads write blocks of 8 B of their own",
        quick={"blocks": 300_000},
        threads=2,
        in_quick=False,
        group="threads",
        source=f"active false sharing: {_HOARD}",
    ),
    Case(
        "mixed-order-threads",
        "mixed_order",
        "two threads, mixed sizes; each frees a quarter of the other's blocks",
        params={"threads": 2, "rounds": 2_500},
        quick={"rounds": 400},
        threads=2,
        group="threads",
        source=_SMARTHEAP,
    ),
    Case(
        "simple-threads",
        "simple",
        "two threads, random replacement, sizes of 4 B to 32 KiB, mostly small",
        params={"size": 0, "threads": 2},
        quick={"rounds": 700},
        threads=2,
        group="threads",
        source="glibc, bench-malloc-thread (Newton, 2014)",
    ),
    Case(
        "t-test",
        "ttest",
        "two threads, random malloc, calloc, realloc and memalign, all verified",
        quick={"lives": 20},
        threads=2,
        group="threads",
        source="t-test1 of ptmalloc (Gloger, 1996)",
    ),
)

_LOCALITY = (
    Case(
        "nbody",
        "nbody",
        "bodies under gravity; their octree is rebuilt and walked in each step",
        quick={"bodies": 5_000, "steps": 14},
        group="locality",
        source=f"Barnes and Hut, Nature, 1986; Olden (Rogers et al., 1995); {_HOARD}",
    ),
)

CASES: tuple[Case, ...] = (*_SMALL, *_THREADS, *_LOCALITY)
