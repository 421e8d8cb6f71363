// Environment variables of the live server. src/settings/options.cpp describes them.
#pragma once

#include <cstdint>

namespace allod::live {

struct Settings {
  bool wanted = false;        // ALLOD_LIVE is set
  char address[256] = {};     // ALLOD_LIVE: address:port
  char token[129] = {};       // ALLOD_LIVE_TOKEN; empty: random
  char hosts[512] = {};       // ALLOD_LIVE_HOSTS: other names of this machine, comma-separated
  char link_file[4096] = {};  // ALLOD_LIVE_LINK: file for the link; empty: standard error
  char wrappers[4096] = {};   // ALLOD_LIVE_WRAPPERS: functions that only pass allocations on
  char push[256] = {};        // ALLOD_LIVE_PUSH: address:port of a collector; empty: none
  char push_path[256] = {};   // there
  std::uint64_t push_ms = 0;  // ALLOD_LIVE_PUSH_SECONDS
  char service[128] = {};     // OTEL_SERVICE_NAME, or the program's name
  // ALLOD_LIVE_ONLY: the only process that serves; negative: the child of that process; 0: all
  std::int64_t only = 0;
  bool was_told = false;  // an earlier program of this process has told the link
  bool children = false;  // ALLOD_LIVE_CHILDREN
};

[[nodiscard]] Settings& settings() noexcept;
// False, after a message, if a value is invalid.
[[nodiscard]] bool read_settings() noexcept;
// Serves the page of this link from now on.
void choose_page(const char* link) noexcept;
// Has the program that this process may execute next serve the same page. Changes the environment.
void keep_page(const char* link) noexcept;

}  // namespace allod::live
