"""Patterns of allocation, each written for one question."""

from bench.compare.cases.case import Case

_HOARD = "Hoard (Berger, McKinley, Blumofe and Wilson, ASPLOS 2000)"
_MIMALLOC_BENCH = "mimalloc-bench"

_SMALL = (
    Case(
        "immediate",
        "immediate",
        "one thread, malloc and free at once, 1 B to 1 KiB",
        quick={"ops": 2_000_000},
        group="small objects",
    ),
    Case(
        "replace",
        "replace",
        "one thread, random replacement in 100,000 live blocks of up to 1 KiB",
        quick={"ops": 1_500_000},
        group="small objects",
        source="Larson and Krishnan, ISMM 1998",
    ),
    Case(
        "tree",
        "tree",
        "one thread builds and tears down a tree of a million nodes",
        quick={"rounds": 2},
        group="small objects",
        source="GCBench (Ellis, Kovac and Boehm, 1997)",
    ),
    Case(
        "bulk",
        "bulk",
        "one thread, 5,000 equal blocks allocated, then freed in three orders",
        quick={"rounds": 300},
        group="small objects",
    ),
    Case(
        "pareto",
        "pareto",
        "one thread, sizes up to 64 KiB and lifetimes distributed after Pareto",
        quick={"ops": 1_000_000},
        group="small objects",
        source="alloc-test (OLogN Technologies, 2018)",
    ),
)

_THREADS = (
    Case(
        "prodcons",
        "prodcons",
        "one thread allocates, another frees, 16 to 256 B",
        quick={"batches": 6_000},
        threads=2,
        group="threads",
        source="Lever and Boreham, USENIX 2000",
    ),
    Case(
        "prodcons-pairs",
        "prodcons",
        "four producers, four consumers",
        params={"pairs": 4, "batches": 5_000},
        quick={"batches": 1_500},
        threads=8,
        by_default=False,
        group="threads",
        source="Lever and Boreham, USENIX 2000",
    ),
    Case(
        "bulk-threads",
        "bulk",
        "two threads, each with 5,000 equal blocks, freed in three orders",
        params={"threads": 2},
        quick={"rounds": 300},
        threads=2,
        group="threads",
    ),
    Case(
        "pareto-threads",
        "pareto",
        "two threads, sizes up to 64 KiB and lifetimes distributed after Pareto",
        params={"threads": 2, "ops": 12_000_000},
        quick={"ops": 600_000},
        threads=2,
        group="threads",
        source="alloc-test (OLogN Technologies, 2018)",
    ),
    Case(
        "generations",
        "generations",
        "two threads at a time come and go, objects pass from each to others",
        quick={"generations": 12},
        threads=2,
        group="threads",
        source=f"mstress (Leijen, {_MIMALLOC_BENCH}, 2019)",
    ),
    Case(
        "rptest",
        "rptest",
        "two threads, 24 B to 16 kB falling off linearly, freed by either",
        quick={"rounds": 2_500},
        threads=2,
        group="threads",
        source="rpmalloc-benchmark (Jansson, 2017)",
    ),
    Case(
        "rptest-exponential",
        "rptest",
        "two threads, 24 B to 16 kB falling off exponentially, freed by either",
        params={"falloff": 2},
        quick={"rounds": 2_500},
        threads=2,
        in_quick=False,
        group="threads",
        source="rpmalloc-benchmark (Jansson, 2017)",
    ),
    Case(
        "churn",
        "churn",
        "20,000 threads come and go, two at a time, with 200 blocks each",
        quick={"threads": 3_000},
        threads=2,
        group="threads",
        source=f"mleak (Leijen, {_MIMALLOC_BENCH}, 2019)",
    ),
    Case(
        "many-threads",
        "many_threads",
        "100 threads, each idle after a little work, then all working",
        quick={"ops": 5_000_000},
        threads=100,
        group="threads",
    ),
    Case(
        "many-threads-1000",
        "many_threads",
        "1,000 threads, each idle after a little work, then all working",
        params={"threads": 1_000},
        quick={"ops": 5_000_000},
        threads=1_000,
        in_quick=False,
        group="threads",
    ),
)

_CORES = tuple(
    Case(
        name,
        "cores",
        about,
        params={"pattern": pattern, "ops": ops},
        quick={"ops": ops // 4},
        threads=8,
        by_default=False,
        group="cores",
        lines=True,
    )
    # Where little travels, the barriers at the begin and the end show.
    for name, pattern, ops, about in (
        ("cores-own", 0, 16_384, "each thread frees its own blocks, 16 B to 2 KiB"),
        ("cores-pass", 1, 4_096, "each thread frees the blocks of the thread before"),
        ("cores-sets", 2, 4_096, "sets of 256 blocks change hands"),
        (
            "cores-crowd",
            0,
            8_192,
            "own blocks; the allocator is told of two processors",
        ),
    )
)

_SIZES = (
    Case(
        "sweep",
        "sweep",
        "one thread, malloc and free of each size, 1 B to 4 MiB, untouched",
        quick={"batches": 5},
        group="sizes",
    ),
    Case(
        "sweep-touch",
        "sweep",
        "one thread, the first byte of each page written, 1 B to 4 MiB",
        params={"touch": 1},
        quick={"batches": 5},
        group="sizes",
    ),
    Case(
        "sweep-threads",
        "sweep",
        "two threads at once, untouched, 1 B to 4 MiB",
        params={"threads": 2},
        quick={"batches": 5},
        threads=2,
        group="sizes",
    ),
    Case(
        "sweep-large",
        "sweep",
        "one thread, the first byte of each page written, 1 B to 64 MiB",
        params={"touch": 1, "max": 64 << 20, "batches": 7},
        quick={"batches": 3},
        in_quick=False,
        group="sizes",
    ),
    Case(
        "sweep-large-threads",
        "sweep",
        "two threads at once, the first byte of each page written, 1 B to 64 MiB",
        params={"touch": 1, "max": 64 << 20, "threads": 2, "batches": 5},
        quick={"batches": 3},
        threads=2,
        in_quick=False,
        group="sizes",
    ),
    Case(
        "sweep-crowd",
        "sweep",
        "eight threads at once, untouched, 1 B to 64 MiB",
        params={"max": 64 << 20, "threads": 8, "batches": 5},
        quick={"batches": 3},
        threads=8,
        in_quick=False,
        group="sizes",
    ),
    Case(
        "large",
        "large",
        "one thread, 20 live blocks of 5 to 25 MiB, an eighth of them written",
        quick={"ops": 600},
        group="sizes",
        source=f"malloc-large (Stolyarov and Leijen, {_MIMALLOC_BENCH}, 2021)",
    ),
    Case(
        "large-whole",
        "large",
        "one thread, 20 live blocks of 1 to 16 MiB, all of each written",
        params={"min": 1, "max": 16, "part": 1, "ops": 1_500},
        quick={"ops": 300},
        group="sizes",
    ),
    Case(
        "large-threads",
        "large",
        "two threads, ten live blocks each of 5 to 25 MiB, half of each written",
        params={"live": 10, "part": 2, "threads": 2, "ops": 500},
        quick={"ops": 150},
        threads=2,
        group="sizes",
    ),
)

_MEMORY = (
    Case(
        "phases",
        "phases",
        "four threads in turn allocate 300 MB and free them again",
        quick={"megabytes": 60},
        threads=4,
        group="memory over time",
        source=f"blow-up: {_HOARD}",
    ),
    Case(
        "idle",
        "idle",
        "95 % of 256 MiB are freed, then nothing happens for ten seconds",
        quick={"mebibytes": 48, "idle": 1_500},
        group="memory over time",
    ),
    Case(
        "holes",
        "holes",
        "276 MiB of 512 B to 2 KiB, one block in twenty stays, then five seconds of rest",
        quick={"mebibytes": 64, "rest": 2_500},
        group="memory over time",
    ),
    Case(
        "holes-threads",
        "holes",
        "eight threads, 1.3 GiB, one block in sixteen stays; one more thread never rests",
        params={"mebibytes": 1_331, "threads": 8, "every": 16, "busy": 1},
        quick={"mebibytes": 256, "rest": 2_500},
        threads=9,
        group="memory over time",
    ),
    Case(
        "fragmentation",
        "fragmentation",
        "48 MiB live, replaced at random by sizes that shift from 32 B to 128 KiB",
        quick={"mebibytes": 12, "epochs": 12},
        group="memory over time",
        source="Johnstone and Wilson, ISMM 1998",
    ),
    Case(
        "survivors",
        "survivors",
        "every 16th of many small blocks stays, then larger ones are allocated",
        quick={"mebibytes": 64},
        group="memory over time",
        source="Robson, Journal of the ACM, 1971",
    ),
)

_LOCALITY = (
    Case(
        "locality",
        "locality",
        "walks over a list, a map and a vector of strings built after churn",
        quick={"elements": 50_000, "walks": 30},
        group="locality",
        source="Grunwald, Zorn and Henderson, PLDI 1993",
    ),
)

# What Allod's headers offer beside any malloc. They say nothing of the malloc as a whole.
_COMPOSED = (
    Case(
        "tailored",
        "tailored",
        "a heap composed for the program, beside pools of the C++ library and malloc",
        quick={"ops": 5_000_000},
        by_default=False,
        group="small objects",
    ),
    Case(
        "tailored_threads",
        "tailored_threads",
        "four threads free each other's objects, in a composed heap and by malloc",
        quick={"batches": 5_000},
        threads=4,
        by_default=False,
        group="threads",
    ),
)

_LATENCY = (
    Case(
        "latency",
        "latency",
        "single calls on mixed sizes up to 64 KiB, beside a busy thread",
        quick={"ops": 300_000},
        threads=2,
        group="latency",
        source="the histogram: HdrHistogram (Tene, 2012)",
    ),
)

_CALLS = (
    Case(
        "realloc",
        "realloc",
        "one thread, growth by bytes and by doubling, alone and in turn",
        quick={"rounds": 20},
        group="calls",
    ),
    Case(
        "calloc",
        "calloc",
        "one thread, fresh and recycled memory, 64 B to 4 MiB",
        quick={"mebibytes": 4, "rounds": 2},
        group="calls",
    ),
    Case(
        "aligned",
        "aligned",
        "one thread, posix_memalign to 64 B up to 4 KiB, random replacement",
        params={"max": 4096},
        quick={"ops": 300_000},
        group="calls",
    ),
    # A case of its own: some allocators have no alignment of 64 KiB.
    Case(
        "aligned-large",
        "aligned",
        "one thread, posix_memalign to 64 KiB and 2 MiB, random replacement",
        params={"min": 64 << 10, "ops": 3_000_000},
        quick={"ops": 400_000},
        in_quick=False,
        group="calls",
    ),
)

_HEAPS = (
    Case(
        "heaps",
        "heaps",
        "one thread, a heap of the program's own beside std::pmr's resources, and its end;"
        " malloc and free where an allocator has no heaps",
        quick={"ops": 500_000, "blocks": 200_000, "rounds": 2},
        by_default=False,
        group="heaps",
    ),
)

CASES: tuple[Case, ...] = (
    *_SMALL,
    *_THREADS,
    *_CORES,
    *_SIZES,
    *_MEMORY,
    *_LOCALITY,
    *_LATENCY,
    *_COMPOSED,
    *_HEAPS,
    *_CALLS,
)
