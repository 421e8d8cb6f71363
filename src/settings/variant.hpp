// Which of the three libraries this is.
#pragma once

#include <cstdint>

namespace allod {

enum class Variant : std::uint8_t { release, debug, hardened };

#if defined(ALLOD_VARIANT_DEBUG)
inline constexpr Variant kVariant = Variant::debug;
#elif defined(ALLOD_VARIANT_HARDENED)
inline constexpr Variant kVariant = Variant::hardened;
#else
inline constexpr Variant kVariant = Variant::release;
#endif

}  // namespace allod
