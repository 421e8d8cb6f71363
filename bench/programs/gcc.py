"""GCC's C++ compiler proper on one large generated source full of templates.

Only cc1plus is measured: the driver, the assembler and the linker are others. Its input
is already preprocessed, so that the result does not depend on where files lie.
"""

from pathlib import Path

from bench.programs.common import Bench, Outcome, Script, cached, main, tool
from bench.programs.process import digest

UNITS = 8
HEADERS = (
    *("algorithm", "functional", "map", "memory", "numeric", "set"),
    *("string", "type_traits", "unordered_map", "variant", "vector"),
)
UNIT = """
namespace unit{n} {{
struct Leaf {{ long value = {n}; std::string name; }};
template <class T, int Depth> struct Node {{
  std::unique_ptr<Node<T, Depth - 1>> left, right;
  std::vector<T> values;
  std::map<std::string, std::variant<T, Leaf, double>> fields;
  long visit(const std::function<long(const T&)>& each) const {{
    long sum = std::accumulate(values.begin(), values.end(), 0L,
                               [&](long total, const T& value) {{ return total + each(value); }});
    for (const auto& [name, field] : fields) {{
      sum += static_cast<long>(name.size()) + std::visit([](const auto& held) -> long {{
        if constexpr (std::is_same_v<decltype(held), const Leaf&>) return held.value * {n};
        else return static_cast<long>(held) + Depth;
      }}, field);
    }}
    if constexpr (Depth > 0) {{
      if (left) sum += left->visit(each);
      if (right) sum -= right->visit(each);
    }}
    return sum;
  }}
}};
template <class T> struct Node<T, -1> {{}};
template <class... T> constexpr std::size_t width(T... values) {{ return (values + ... + {n}); }}
long run(int seed) {{
  Node<{kind}, {depth}> root;
  std::unordered_map<int, std::set<std::string>> index;
  for (int i = 0; i < seed; ++i) {{
    root.values.push_back(static_cast<{kind}>(i * {n}));
    root.fields.emplace(std::to_string(i), Leaf{{i, "leaf"}});
    index[i % 7].insert(std::string(width(1u, 2u, {n}u), 'a'));
  }}
  std::sort(root.values.begin(), root.values.end(), std::greater<{kind}>());
  return root.visit([seed](const {kind}& value) {{ return static_cast<long>(value) % seed; }})
       + static_cast<long>(index.size());
}}
}}  // namespace unit{n}
"""


def source(units: range, name: str = "run_all") -> str:
    """A C++ program of these units, each with its own instantiations, that this function runs."""
    kinds = ("int", "long", "double", "unsigned short")
    text = [f"#include <{header}>" for header in HEADERS]
    text += [
        UNIT.format(n=n, kind=kinds[n % len(kinds)], depth=2 + n % 3) for n in units
    ]
    total = " + ".join(f"unit{n}::run(seed)" for n in units)
    return "\n".join([*text, f"long {name}(int seed) {{ return {total}; }}", ""])


def inputs(bench: Bench) -> Path:
    units = bench.count(UNITS)
    version = tool("g++", "--version", directory=bench.directory)

    def preprocess(path: Path) -> None:
        written = path.with_name("source.cpp")
        written.write_text(source(range(units)))
        command = ("g++", "-std=c++17", "-E", "-P", "source.cpp", "-o", path)
        tool(*command, directory=path.parent)

    return cached("gcc.ii", preprocess, Path(__file__), version.encode(), units)


def run(bench: Bench) -> Outcome:
    compiler = tool(
        "g++", "-print-prog-name=cc1plus", directory=bench.directory
    ).strip()
    usage, output = bench.run(
        *(compiler, "-fpreprocessed", inputs(bench), "-quiet", "-std=c++17", "-O1"),
        *("-dumpbase", "source.cpp", "-o", "-"),
    )
    return Outcome(usage, bench.count(UNITS), digest(output))


SCRIPT = Script("gcc", __doc__, {"g++": "g++"}, run, inputs)

if __name__ == "__main__":
    main(SCRIPT)
