// The platform of the system that the compiler compiles for.
#pragma once

#if defined(_WIN32)
#include "allod/os/windows/windows.hpp"
#else
#include "allod/os/linux/linux.hpp"
#endif

namespace allod::os {

#if defined(_WIN32)
using Native = Windows;
#else
using Native = Linux;
#endif

}  // namespace allod::os
