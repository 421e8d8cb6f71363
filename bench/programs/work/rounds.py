"""Well-known kinds of benchmark programs for Python; prints a checksum of each round.

usage: rounds.py PROGRAM ROUNDS
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from random import Random

Tree = tuple["Tree", "Tree"] | None


def grow(depth: int) -> Tree:
    return (grow(depth - 1), grow(depth - 1)) if depth else None


def nodes(tree: Tree) -> int:
    return 1 + nodes(tree[0]) + nodes(tree[1]) if tree else 1


def trees(chance: Random) -> int:
    """Short-lived trees beside one that stays (after GCBench of Ellis, Kovac and Boehm)."""
    kept = grow(17)
    total = sum(
        nodes(grow(depth)) for depth in (4, 7, 10) for _ in range(1 << 12 - depth)
    )
    return total + nodes(kept)


def document(chance: Random, depth: int) -> object:
    """A nested document of lists, objects, texts and numbers."""
    kind = chance.randrange(6) if depth else chance.randrange(2, 6)
    if kind == 0:
        return [document(chance, depth - 1) for _ in range(chance.randrange(2, 9))]
    if kind == 1:
        count = chance.randrange(3, 12)
        return {
            f"field{chance.randrange(300)}": document(chance, depth - 1)
            for _ in range(count)
        }
    if kind == 2:
        return "text \u00e9\u4e2d\n" * chance.randrange(12)
    return (chance.randrange(10**12), chance.random(), chance.random() < 0.5)[kind - 3]


def json_texts(chance: Random) -> int:
    """Documents written and read, as in pyperformance's json_dumps and json_loads."""
    documents = [{"body": [document(chance, 4) for _ in range(9)]} for _ in range(150)]
    total = 0
    for _ in range(4):
        texts = [json.dumps(item, sort_keys=True) for item in documents]
        documents = [json.loads(text) for text in texts]
        total += sum(map(len, texts))
    return total


def regex(chance: Random) -> int:
    """Matches counted and replaced in a long text, as in the regex-redux benchmark."""
    letters = "".join(chance.choices("acgt\n", (30, 20, 20, 30, 2), k=120_000))
    total = 0
    for pattern in (
        "agggtaaa|tttaccct",
        "[cgt]gggta",
        "a.{3,9}?ca",
        "(ac|gt)+t",
        r"\w+\n",
    ):
        total += sum(len(match.group()) for match in re.finditer(pattern, letters))
    for pattern, text in (("tHa[Nt]|ca", "<4>"), ("aa", "<3>"), (r"<(\d)>g", r"[\1]")):
        letters = re.sub(pattern, text, letters)
    words = re.findall(r"[a-z]+|<\d>", letters)
    return total + len(letters) + len(Counter(words))


class Packet:
    """A message on its way between tasks."""

    def __init__(self, kind: str, payload: list[int]) -> None:
        self.kind = kind
        self.payload = payload
        self.next: Packet | None = None


class Task:
    """A task of a small operating system, with a linked queue of packets."""

    def __init__(self, name: int, others: list[Task]) -> None:
        self.name = name
        self.others = others
        self.first: Packet | None = None
        self.handled = 0

    def receive(self, packet: Packet) -> None:
        packet.next, self.first = self.first, packet

    def step(self, chance: Random) -> int:
        """Handles one packet: answers it, splits it, or drops it."""
        packet = self.first
        if packet is None:
            return 0
        self.first, packet.next = packet.next, None
        self.handled += sum(packet.payload) & 0xFF
        other = self.others[(self.name + len(packet.payload)) % len(self.others)]
        if packet.kind == "work" and len(packet.payload) > 1:
            half = len(packet.payload) // 2
            other.receive(Packet("work", packet.payload[:half]))
            self.receive(Packet("device", packet.payload[half:]))
        elif packet.kind == "device":
            other.receive(Packet("answer", [value + 1 for value in packet.payload]))
        return 1


def objects(chance: Random) -> int:
    """Tasks that send each other packets (after Martin Richards' simulated kernel)."""
    tasks: list[Task] = []
    tasks.extend(Task(number, tasks) for number in range(8))
    steps = 0
    for burst in range(60):
        for task in tasks:
            task.receive(
                Packet("work", [burst + value for value in range(40 + task.name)])
            )
        while handled := sum(task.step(chance) for task in tasks):
            steps += handled
    return steps + sum(task.handled for task in tasks)


def dicts(chance: Random) -> int:
    """Dictionaries that grow and shrink, with text keys, counters and groups."""
    live: dict[str, list[str]] = {}
    groups: defaultdict[int, set[str]] = defaultdict(set)
    total = 0
    for step in range(220_000):
        key = f"key {chance.getrandbits(17)}"
        if key in live:
            total += len(live.pop(key))
        else:
            live[key] = [key, "v" * (step % 60)]
            groups[step % 977].add(key)
    for copy in (dict(live), {value[1]: key for key, value in live.items()}):
        total += len(copy)
    return total + sum(len(group) for group in groups.values())


def digits_of_pi() -> Iterator[int]:
    """An unbounded spigot (Gibbons 2006), whose numbers grow with every digit."""
    q, r, t, k, n, i = 1, 0, 1, 1, 3, 3
    while True:
        if 4 * q + r - t < n * t:
            yield n
            q, r, n = 10 * q, 10 * (r - n * t), 10 * (3 * q + r) // t - 10 * n
        else:
            n, r = (q * (7 * k) + 2 + r * i) // (t * i), (2 * q + r) * i
            q, t, k, i = q * k, t * i, k + 1, i + 2


def digits(chance: Random) -> int:
    """Long numbers, as in the pidigits benchmark."""
    source = digits_of_pi()
    return sum(next(source) * (place % 97) for place in range(1100))


PROGRAMS: dict[str, Callable[[Random], int]] = {
    "trees": trees,
    "json": json_texts,
    "regex": regex,
    "objects": objects,
    "dicts": dicts,
    "digits": digits,
}


def main() -> None:
    name, rounds = sys.argv[1], int(sys.argv[2])
    for number in range(rounds):
        print(number, PROGRAMS[name](Random(number)))


main()
