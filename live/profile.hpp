// Requests for the heap profile: flame graphs, folded stacks, tables of stacks, and files for
// pprof.
#pragma once

#include <event2/http.h>

#include <cstdint>
#include <string_view>

namespace allod::live {

class Server;

// False if the path is unknown.
[[nodiscard]] bool answer_profile(Server& server, evhttp_request* request, std::string_view path,
                                  const char* of, std::uint64_t from_ms, std::uint64_t to_ms,
                                  std::uint64_t seconds) noexcept;

}  // namespace allod::live
