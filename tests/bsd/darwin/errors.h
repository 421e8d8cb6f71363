/* Numbers of errors of macOS that are others on Linux. */
#pragma once

#include <errno.h>

#undef ENOSYS
#define ENOSYS 78
