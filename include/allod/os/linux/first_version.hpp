// The version that glibc's first symbols have on a processor, where libraries load with any glibc
// since 2.17.
#pragma once

#if defined(__x86_64__)
#define ALLOD_FIRST_VERSION "GLIBC_2.2.5"
#else
#define ALLOD_FIRST_VERSION "GLIBC_2.17"
#endif
