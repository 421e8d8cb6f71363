# mypy: disable-error-code="attr-defined"
"""Forks, and enters namespaces, after much was freed; tells how many threads there are.

For Python 3.12 or later, which has these functions.
"""

import os
import signal

MIB = 1 << 20


def free_much() -> None:
    """Frees 100 MB in small blocks."""
    blocks = [b"%d" % i * 1600 for i in range(12500)]
    blocks.clear()


def threads() -> int:
    """As the system counts them."""
    with open("/proc/self/status") as status:
        return next(
            int(line.split()[1]) for line in status if line.startswith("Threads:")
        )


def end(child: int) -> int:
    """Waits for a child."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


for _ in range(4):
    free_much()
    child = os.fork()
    if child == 0:
        os._exit(threads())
    print("fork", threads(), end(child))

own = os.fork()
if own == 0:
    free_much()
    os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNS)
    os._exit(threads())
print("own", end(own))

# The other one keeps its namespaces until it is told to end.
reader, writer = os.pipe()
other = os.fork()
if other == 0:
    free_much()
    os.unshare(os.CLONE_NEWUSER)
    os.write(writer, b"1")
    signal.pause()
os.close(writer)
assert os.read(reader, 1) == b"1", "there is no namespace"
with open(f"/proc/{other}/ns/user") as namespace:
    free_much()
    os.setns(namespace, os.CLONE_NEWUSER)
print("entered", threads())
os.kill(other, signal.SIGKILL)
print("ended", end(other))
