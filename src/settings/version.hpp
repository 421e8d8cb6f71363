#pragma once

#include <string_view>

#include "allod.h"

namespace allod {

inline constexpr std::string_view kVersion = ALLOD_VERSION;

}  // namespace allod
