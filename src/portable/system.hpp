// What the sources of this room ask of the system. The room of each system defines it.
#pragma once

#include <string_view>

namespace allod::portable {

// As messages name it.
[[nodiscard]] std::string_view system_name() noexcept;

// The names of all options begin with it.
inline constexpr std::string_view kPrefix = "ALLOD_";

// Calls `visit` for each variable of the environment whose name begins so, without that beginning.
void for_each_variable(void (*visit)(std::string_view name,
                                     std::string_view value) noexcept) noexcept;

// After a report, as abort() would.
[[noreturn]] void end_process() noexcept;

}  // namespace allod::portable
