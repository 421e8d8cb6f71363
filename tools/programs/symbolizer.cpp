// Names the functions, files and lines at addresses of a file, for an installation that has no
// llvm-symbolizer: the part of that program that the commands use, with the same output.
//
// allod-symbolizer --obj=FILE: reads addresses from standard input, a hexadecimal number on each
// line, by which the file's own tables count. Prints a line of JSON for each: the functions there,
// innermost first. Other options say what it does anyway.
#include <backtrace.h>
#include <cxxabi.h>
#include <link.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "text/demangle.hpp"

namespace {

// What libbacktrace asks for the objects of its own process, to find where they lie. The file lies
// where its own tables say.
using Visit = int(dl_phdr_info*, std::size_t, void*);

struct Answer {
  std::string frames;
};

void append_text(std::string& to, const char* text) {
  to += '"';
  for (; *text != '\0'; ++text) {
    const auto byte = static_cast<unsigned char>(*text);
    if (byte == '"' || byte == '\\') {
      to += '\\';
      to += *text;
    } else if (byte < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", byte);
      to += escaped;
    } else {
      to += *text;
    }
  }
  to += '"';
}

std::string demangled(const char* name) {
  char room[4096];
  allod::Bounded other{room, sizeof room};
  if (allod::demangle_rust(name, other)) return std::string{other.text()};
  other.cut(0);
  if (allod::demangle_d(name, other)) return std::string{other.text()};
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain{
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free};
  if (plain == nullptr) return name;
  other.cut(0);
  return std::string{allod::decode_old_rust(plain.get(), other) ? other.text() : plain.get()};
}

void append_frame(Answer& answer, const char* function, const char* file, int line) {
  const std::string plain = demangled(function);
  if (!answer.frames.empty()) answer.frames += ',';
  answer.frames += "{\"FunctionName\":";
  append_text(answer.frames, plain.c_str());
  answer.frames += ",\"FileName\":";
  append_text(answer.frames, file != nullptr ? file : "");
  answer.frames += ",\"Line\":" + std::to_string(line) + "}";
}

void ignore_error(void*, const char*, int) {}

void take_symbol(void* data, std::uintptr_t, const char* name, std::uintptr_t, std::uintptr_t) {
  if (name != nullptr) append_frame(*static_cast<Answer*>(data), name, nullptr, 0);
}

int take_place(void* data, std::uintptr_t, const char* file, int line, const char* function) {
  if (function != nullptr) append_frame(*static_cast<Answer*>(data), function, file, line);
  return 0;
}

void answer_line(backtrace_state* state, std::uintptr_t address) {
  Answer answer;
  if (state != nullptr) {
    backtrace_pcinfo(state, address, &take_place, &ignore_error, &answer);
    if (answer.frames.empty()) {
      backtrace_syminfo(state, address, &take_symbol, &ignore_error, &answer);
    }
  }
  std::printf("{\"Symbol\":[%s]}\n", answer.frames.c_str());
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming, bugprone-reserved-identifier)
extern "C" int __wrap_dl_iterate_phdr(Visit* visit, void* data) {
  dl_phdr_info file{};
  file.dlpi_name = "";
  return visit(&file, sizeof file, data);
}

int main(int count, char** arguments) {
  constexpr std::string_view kFile = "--obj=";
  const char* file = nullptr;
  for (int i = 1; i < count; ++i) {
    if (std::string_view{arguments[i]}.starts_with(kFile)) file = arguments[i] + kFile.size();
  }
  if (file == nullptr) {
    std::fprintf(stderr, "usage: allod-symbolizer --obj=FILE < ADDRESSES\n");
    return 2;
  }
  backtrace_state* const state = backtrace_create_state(file, 0, &ignore_error, nullptr);
  char line[64];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    answer_line(state, std::strtoull(line, nullptr, 16));
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
