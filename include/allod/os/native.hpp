// The platform of the system that the compiler compiles for.
#pragma once

#if defined(_WIN32)
#include "allod/os/windows/windows.hpp"
#elif defined(__APPLE__)
#include "allod/os/darwin/darwin.hpp"
#elif defined(__FreeBSD__)
#include "allod/os/freebsd/freebsd.hpp"
#else
#include "allod/os/linux/linux.hpp"
#endif

namespace allod::os {

#if defined(_WIN32)
using Native = Windows;
#elif defined(__APPLE__)
using Native = Darwin;
#elif defined(__FreeBSD__)
using Native = FreeBsd;
#else
using Native = Linux;
#endif

}  // namespace allod::os
