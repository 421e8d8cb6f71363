// What a library that goes on after an error has reported, in lines for machines, read by the
// program itself.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "cases.h"

namespace allod::test {

// Used by one thread at a time.
class Findings {
 public:
  // From now on reports come here, and nowhere else. In a child of a fork: to this process.
  void start(int (*set_option)(const char*, const char*)) {
    int ends[2];
    CHECK(pipe2(ends, O_NONBLOCK) == 0, "pipe2");
    reports_ = ends[0];
    char descriptor[16];
    snprintf(descriptor, sizeof descriptor, "%d", ends[1]);
    CHECK(set_option("REPORT_FD", descriptor) == 0 && set_option("ABORT_ON_ERROR", "0") == 0 &&
              set_option("SHOW_ERRORS", "0") == 0,
          "options");
  }
  [[nodiscard]] unsigned long count() const { return count_; }

  // What is at hand, for whoever reads that something was not found.
  template <class... Args>
  void note(const char* format, Args... args) {
    snprintf(note_, sizeof note_, format, args...);
  }

  void expect_nothing() { CHECK(take() == 0, "nothing was wrong, but: %s", text_); }
  // Of the address, as one of these kinds, up to `most` times.
  void expect(std::initializer_list<const char*> kinds, const void* address, unsigned most = 1) {
    take();
    unsigned lines = 0;
    for (const char* line = text_; *line != '\0'; line = strchr(line, '\n') + 1) {
      CHECK(is_one_of(line, kinds, address), "expected %s of %p (%s), found %s", *kinds.begin(),
            address, note_, text_);
      CHECK(strchr(line, '\n') != nullptr, "half a report: %s", text_);
      ++lines;
    }
    CHECK(lines >= 1 && lines <= most, "%u reports of %s of %p (%s): %s", lines, *kinds.begin(),
          address, note_, text_);
    ++count_;
  }

 private:
  // What has come since the last look.
  std::size_t take() {
    std::size_t length = 0;
    for (;;) {
      const ssize_t got = read(reports_, text_ + length, sizeof text_ - length - 1);
      if (got <= 0) break;
      length += static_cast<std::size_t>(got);
    }
    text_[length] = '\0';
    return length;
  }
  [[nodiscard]] static bool is_one_of(const char* line, std::initializer_list<const char*> kinds,
                                      const void* address) {
    for (const char* kind : kinds) {
      char wanted[128];
      const int length =
          snprintf(wanted, sizeof wanted, "{\"allod\":\"error\",\"kind\":\"%s\",\"address\":\"%p\"",
                   kind, const_cast<void*>(address));
      if (strncmp(line, wanted, static_cast<std::size_t>(length)) == 0) return true;
    }
    return false;
  }

  int reports_ = -1;
  unsigned long count_ = 0;
  char note_[256] = "";
  char text_[65536];
};

}  // namespace allod::test
