"""The GNU compiler, assembler and linker under make."""

from __future__ import annotations

import shutil

from .launcher import WORKLOADS, DebianPackages, Launcher, Sides, digests

PARTS = 2
STRUCTURES = 10


def part(number: int) -> str:
    """A long C++ source that makes the compiler instantiate many templates."""
    lines = [
        f"#include <{header}>"
        for header in (
            *("algorithm", "map", "memory", "numeric", "optional"),
            *("string", "unordered_map", "variant", "vector"),
        )
    ]
    lines.append("namespace {")
    for index in range(STRUCTURES):
        size = index % 9 + 1
        lines.append(f"""
template <class T> struct Table{index} {{
  std::map<std::string, std::vector<std::variant<T, std::string, double>>> rows;
  long value(T seed) {{
    for (int i = 0; i < {size * 10}; ++i) {{
      auto &row = rows[std::to_string(i * {index} + {number})];
      row.emplace_back(static_cast<T>(seed + i));
      row.emplace_back(std::string(static_cast<size_t>(i), 'x'));
    }}
    return std::accumulate(rows.begin(), rows.end(), 0L, [](long sum, auto &row) {{
      for (auto &cell : row.second)
        sum += std::visit([](auto &&held) -> long {{
          if constexpr (requires {{ held.size(); }}) return long(held.size());
          else return static_cast<long>(held) + {index};
        }}, cell);
      return sum;
    }});
  }}
}};""")
    lines.append("}  // namespace")
    lines.append(f"long part{number}() {{ long sum = 0;")
    kinds = ("int", "long", "char", "unsigned short")
    lines += [
        f"sum += Table{index}<{kinds[(index + number) % len(kinds)]}>().value({index});"
        for index in range(STRUCTURES)
    ]
    lines.append("return sum; }")
    return "\n".join(lines) + "\n"


def main_file() -> str:
    """The source that calls every part."""
    declarations = "".join(f"long part{number}();\n" for number in range(PARTS))
    total = " + ".join(f"part{number}()" for number in range(PARTS))
    return (
        "#include <cstdio>\n"
        f'{declarations}int main() {{ std::printf("%ld\\n", {total}); }}\n'
    )


def test_gcc_compiles_and_links_the_same_objects_in_parallel(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("g++", "make")

    def work(launcher: Launcher) -> tuple[str, dict[str, str]]:
        for number in range(PARTS):
            source = launcher.directory / f"part{number}.cpp"
            source.write_text(part(number))
        (launcher.directory / "main.cpp").write_text(main_file())
        shutil.copy(WORKLOADS / "gcc" / "Makefile", launcher.directory)
        launcher.run("make", "-j2")
        printed = launcher.run(launcher.directory / "program").text
        launcher.check_allocator_of("make", "g++", "cc1plus", "as", "ld", "program")
        return printed, digests(launcher.directory, "*.o") | digests(
            launcher.directory, "program"
        )

    printed, built = sides.agree_on(work)
    assert int(printed) != 0
    assert len(built) == PARTS + 2
