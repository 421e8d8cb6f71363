// What the environment says about the live server. The options are described in
// src/settings/options.cpp, with all others.
#pragma once

#include <cstdint>

namespace allod::live {

struct Settings {
  bool wanted = false;        // ALLOD_LIVE is there
  char address[256] = {};     // ALLOD_LIVE: address:port
  char token[129] = {};       // ALLOD_LIVE_TOKEN; empty: a random one
  char hosts[512] = {};       // ALLOD_LIVE_HOSTS: further names of this machine, by commas
  char link_file[4096] = {};  // ALLOD_LIVE_LINK: where the link is written; empty: standard error
  std::int64_t only = 0;      // ALLOD_LIVE_ONLY: the one process that serves; 0: every process
  bool children = false;      // ALLOD_LIVE_CHILDREN
};

[[nodiscard]] Settings& settings() noexcept;
// False when a value cannot be used; a message says why.
[[nodiscard]] bool read_settings() noexcept;

}  // namespace allod::live
