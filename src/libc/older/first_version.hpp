// The version that glibc's first symbols have on this processor.
#pragma once

#if defined(__x86_64__)
#define ALLOD_FIRST_VERSION "GLIBC_2.2.5"
#else
#define ALLOD_FIRST_VERSION "GLIBC_2.17"
#endif
