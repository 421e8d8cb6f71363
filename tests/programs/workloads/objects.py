"""Prints a summary of work done in many objects, threads and processes."""

from __future__ import annotations

import gc
import hashlib
import json
import multiprocessing
import re
import sys
import threading
import zlib
from collections import Counter, OrderedDict, deque
from queue import SimpleQueue
from random import Random


class Node:
    """A node of a cyclic graph, which only the collector can free."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.links: list[Node] = []


def documents(seed: int, count: int) -> str:
    """Builds, prints and parses documents, and returns their digest."""
    chance = Random(seed)
    seen = hashlib.sha256()
    for _ in range(count):
        document = {
            f"key{chance.randrange(1000)}": [
                "x" * chance.randrange(300),
                chance.random(),
                {"deep": list(range(chance.randrange(60)))},
            ]
            for _ in range(chance.randrange(40))
        }
        text = json.dumps(document)
        assert json.loads(text) == document
        seen.update(zlib.compress(text.encode()))
    return seen.hexdigest()


def graphs(seed: int, count: int) -> int:
    """Builds cyclic garbage, collects it and returns the bytes it held."""
    chance = Random(seed)
    total = 0
    for _ in range(count):
        nodes = [Node(bytes(chance.randrange(2000))) for _ in range(300)]
        for node in nodes:
            node.links = chance.sample(nodes, 5)
        total += sum(len(node.payload) for node in nodes)
        gc.collect()
    return total


def containers(seed: int) -> list[int]:
    """Grows and shrinks containers of many shapes."""
    chance = Random(seed)
    queue: deque[str] = deque()
    ordered: OrderedDict[int, str] = OrderedDict()
    words: Counter[str] = Counter()
    growing = bytearray()
    for step in range(30000):
        word = f"w{chance.randrange(5000)}" * chance.randrange(1, 9)
        queue.append(word)
        ordered[chance.randrange(4000)] = word
        words[word] += 1
        growing += word.encode()
        if step % 3 == 0:
            queue.popleft()
        if step % 7 == 0:
            ordered.popitem(last=False)
        if len(growing) > 200000:
            growing = growing[-1000:]
    found = len(re.findall(r"(w\d+)\1", growing.decode()))
    return [len(queue), len(ordered), len(words), len(growing), found]


def pass_along(count: int) -> list[str]:
    """Hands blocks from thread to thread: each is freed by another than made it."""
    chain: list[SimpleQueue[bytes | None]] = [SimpleQueue() for _ in range(5)]
    results: list[str] = []

    def stage(position: int) -> None:
        seen = hashlib.sha256()
        while (block := chain[position].get()) is not None:
            seen.update(block)
            if position + 1 < len(chain):
                chain[position + 1].put(bytes(reversed(block)) + b"+")
        if position + 1 < len(chain):
            chain[position + 1].put(None)
        results.append(f"{position} {seen.hexdigest()}")

    threads = [threading.Thread(target=stage, args=(i,)) for i in range(len(chain))]
    for thread in threads:
        thread.start()
    chance = Random(7)
    for _ in range(count):
        chain[0].put(chance.randbytes(chance.randrange(1, 3000)))
    chain[0].put(None)
    for thread in threads:
        thread.join()
    return sorted(results)


def in_short_threads(count: int) -> list[int]:
    """Lets many threads start, work and end."""
    results: list[int] = []
    for batch in range(count):
        threads = [
            threading.Thread(target=lambda n=n: results.append(graphs(n, 1)))
            for n in range(batch, batch + 6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return sorted(results)


def in_processes(method: str) -> list[str]:
    """Does the documents in processes that are forked or started afresh."""
    context = multiprocessing.get_context(method)
    with context.Pool(3) as pool:
        return pool.starmap(documents, [(seed, 40) for seed in range(9)])


def main() -> None:
    print("documents", documents(1, 300))
    print("graphs", graphs(2, 20))
    print("containers", containers(3))
    print("pass along", pass_along(4000))
    print("short threads", in_short_threads(12))
    # Forks while other threads allocate: their state must not matter to a child.
    stop = threading.Event()
    busy = [
        threading.Thread(target=lambda: [containers(9) for _ in iter(stop.is_set, 1)])
        for _ in range(2)
    ]
    for thread in busy:
        thread.start()
    print("forked", in_processes("fork"))
    stop.set()
    for thread in busy:
        thread.join()
    print("spawned", in_processes("spawn"))
    print("blocks", sys.getallocatedblocks() >= 0)


if __name__ == "__main__":
    main()
