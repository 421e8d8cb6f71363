// The start files of glibc since 2.34 ask for a function of that release, which calls the program's
// constructors itself. Its first version is told to.
extern "C" {

using Main = int(int, char**, char**);
using Hook = void();

// NOLINTBEGIN(readability-identifier-naming, bugprone-reserved-identifier)
[[gnu::visibility("hidden")]] extern Main* const __init_array_start[];
[[gnu::visibility("hidden")]] extern Main* const __init_array_end[];
// NOLINTEND(readability-identifier-naming, bugprone-reserved-identifier)

static int construct(int count, char** arguments, char** variables) {
  for (Main* const* each = __init_array_start; each != __init_array_end; ++each) {
    (*each)(count, arguments, variables);
  }
  return 0;
}

int first_start(Main* run, int count, char** arguments, Main* begin, Hook* end, Hook* end_loader,
                void* stack);
__asm__(".symver first_start, __libc_start_main@" ALLOD_FIRST_VERSION);

// NOLINTNEXTLINE(readability-identifier-naming, bugprone-reserved-identifier)
[[gnu::visibility("hidden")]] int __libc_start_main(Main* run, int count, char** arguments, Hook*,
                                                    Hook*, Hook* end_loader, void* stack) {
  return first_start(run, count, arguments, &construct, nullptr, end_loader, stack);
}
}
