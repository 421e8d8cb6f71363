// Which of the libraries this is, and of what version.
#pragma once

#include <cstdint>
#include <string_view>

#include "allod.h"

namespace allod {

enum class Variant : std::uint8_t { release, debug, hardened };

#if defined(ALLOD_VARIANT_DEBUG)
inline constexpr Variant kVariant = Variant::debug;
#elif defined(ALLOD_VARIANT_HARDENED)
inline constexpr Variant kVariant = Variant::hardened;
#else
inline constexpr Variant kVariant = Variant::release;
#endif

inline constexpr std::string_view kVersion = ALLOD_VERSION;

}  // namespace allod
