#include "attach/attach.hpp"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>

#include "allod/base/auxiliary.hpp"
#include "allod/os/linux/calls.hpp"
#include "allod/os/linux/guest.hpp"
#include "allod/os/linux/symbol_table.hpp"
#include "attach/resting_place.hpp"
#include "image/own_image.hpp"
#include "instance/process.hpp"
#include "libc/completion.hpp"
#include "libc/stop_signal.hpp"
#include "settings/options.hpp"
#include "stop/resting_handler.hpp"

#if defined(__GLIBC__) && defined(DLFO_STRUCT_HAS_EH_DBASE)

#include <gnu/libc-version.h>

// Weak: the program may run with an older libc.
#pragma weak _dl_find_object

namespace allod::attach {

namespace {

using Start = int (*)(const char* address, std::uint16_t port);

constexpr std::string_view kLiveLibrary = "liballod-live.so";

constinit std::atomic<bool> is_opening{false};

// --- what is loaded, without the loader's lock ------------------------------------------------

// Null if no object contains the address.
const link_map* object_at(Address at) noexcept {
  dl_find_object found{};
  const bool is_there = _dl_find_object(reinterpret_cast<void*>(at), &found) == 0;
  return is_there ? found.dlfo_link_map : nullptr;
}
const link_map* libc() noexcept {
  return object_at(reinterpret_cast<Address>(&gnu_get_libc_version));
}

// 0 if the C library has no such function.
[[gnu::noinline, gnu::cold]] Address address_in_libc(const char* name) noexcept {
  const link_map* const object = libc();
  if (object == nullptr) return 0;
  // The loader relocates these entries in place.
  const auto in_place = [&](Address at) noexcept {
    return at < object->l_addr ? at + object->l_addr : at;
  };
  const ElfW(Sym)* const symbol = os::SymbolTable{object->l_ld, in_place}.find(name);
  return symbol == nullptr ? 0 : object->l_addr + symbol->st_value;
}
// A function of the loaded C library. This library has no reference to it, since it must also load
// where it has another version.
template <class Function>
Function* function_of_libc(const char* name) noexcept {
  return reinterpret_cast<Function*>(address_in_libc(name));
}

// --- the thread that opens the page -------------------------------------------------------------

// The server's library lies beside this one. Writes its path; false if it does not fit.
bool find_live_library(char (&path)[4096]) noexcept {
  const link_map* const own = object_at(address_of(&__ehdr_start));
  if (own == nullptr) return false;
  const std::size_t length = strlen(own->l_name);
  if (length >= sizeof path) return false;
  // It may have been preloaded by a link that lies elsewhere.
  const long linked = raw_syscall(SYS_readlinkat, AT_FDCWD, reinterpret_cast<long>(own->l_name),
                                  reinterpret_cast<long>(path), sizeof path - 1);
  const bool is_elsewhere = linked > 0 && path[0] == '/';
  if (!is_elsewhere) memcpy(path, own->l_name, length);
  path[is_elsewhere ? static_cast<std::size_t>(linked) : length] = '\0';
  const std::size_t slash = std::string_view{path}.rfind('/');
  if (slash == std::string_view::npos) return false;
  if (slash + 1 + kLiveLibrary.size() >= sizeof path) return false;
  memcpy(path + slash + 1, kLiveLibrary.data(), kLiveLibrary.size() + 1);
  return true;
}

// The signals that stop threads in a search for leaks must reach this thread.
void let_stop_signals_in() noexcept {
  const std::uint64_t stopping =
      std::uint64_t{1} << (kStopSignal - 1) | std::uint64_t{1} << (kSecondStopSignal - 1);
  raw_syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, reinterpret_cast<long>(&stopping), 0,
              sizeof stopping);
}

[[gnu::cold]] void* open_page(void*) noexcept {
  let_stop_signals_in();
  const auto load = function_of_libc<void*(const char*, int)>("dlopen");
  char path[4096];
  if (load != nullptr && find_live_library(path)) {
    void* const library = load(path, RTLD_NOW);
    const auto start =
        library == nullptr ? nullptr : reinterpret_cast<Start>(dlsym(library, "allod_live_start"));
    if (start != nullptr) static_cast<void>(start(nullptr, 0));
  }
  is_opening.store(false);
  return nullptr;
}

// Starts a detached thread. Its attributes are complete, so that pthread_create() reads no defaults
// under a lock.
[[gnu::noinline, gnu::cold]] bool start_thread() noexcept {
  constexpr std::size_t kStackBytes = std::size_t{256} << 10;
  using Attributes = pthread_attr_t*;
  const auto create =
      function_of_libc<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>(
          "pthread_create");
  const auto prepare = function_of_libc<int(Attributes)>("pthread_attr_init");
  const auto detach = function_of_libc<int(Attributes, int)>("pthread_attr_setdetachstate");
  const auto resize = function_of_libc<int(Attributes, std::size_t)>("pthread_attr_setstacksize");
  pthread_attr_t attributes;
  if (create == nullptr || prepare == nullptr || detach == nullptr || resize == nullptr ||
      prepare(&attributes) != 0) {
    return false;
  }
  detach(&attributes, PTHREAD_CREATE_DETACHED);
  resize(&attributes, kStackBytes);
  pthread_t thread{};
  return create(&thread, &attributes, &open_page, nullptr) == 0;
}

// --- the request -------------------------------------------------------------------------------

// A process that has changed its user since its start, or that others may not look into, has
// rights that a page must not tell of.
bool has_kept_rights() noexcept {
  std::uint32_t user[3] = {};
  const auto at = [&](int which) noexcept { return reinterpret_cast<long>(&user[which]); };
  if (raw_syscall(os::calls::kUsers, at(0), at(1), at(2)) != 0) return false;
  const auto real = static_cast<std::uint32_t>(Auxiliary::value(AT_UID));
  const bool is_same = user[0] == real && user[1] == real && user[2] == real;
  return is_same && Auxiliary::value(AT_EUID) == real &&
         raw_syscall(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0) == 1;
}

// Whether the interrupted code holds no lock that pthread_create() takes: of the heap, of the
// loader, or of the C library.
[[gnu::noinline, gnu::cold]] bool is_at_rest(const Interrupted& interrupted) noexcept {
  if (Process::is_interrupted() || Profile::is_busy()) return false;
  // A library may stand in front of the function that tells where the C library is.
  if (address_in_libc("pthread_create") == 0) return false;
  const link_map* const here = object_at(interrupted.at());
  if (here == nullptr) return !interrupted.has_signals_blocked();  // compiled at run time
  if (here == object_at(address_of(&__ehdr_start))) return false;
  if (here == object_at(Auxiliary::value(AT_BASE))) return false;  // the loader
  return here == libc() ? interrupted.waits() : !interrupted.has_signals_blocked();
}

// Whoever asks repeats the request until the page is there. So one that comes at a bad moment is
// dropped.
[[gnu::cold]] void on_request(int, siginfo_t* info, void* context) noexcept {
  if (info->si_code != SI_QUEUE || info->si_value.sival_int != kRequest) return;
  const int error = errno;
  const bool may_open = !os::LinuxGuest::is_here() && has_kept_rights() &&
                        is_at_rest(Interrupted{*static_cast<const ucontext_t*>(context)});
  if (may_open && !is_opening.exchange(true) && !start_thread()) is_opening.store(false);
  errno = error;
}

bool is_linked_into_program() noexcept {
  return Auxiliary::value(AT_PHDR) - address_of(&__ehdr_start) < 4096;
}

}  // namespace

void watch() noexcept {
  if (kThreadSanitizer || !settings().takes_requests || &_dl_find_object == nullptr) return;
  if (&allod_finds_objects_without_lock != nullptr && !allod_finds_objects_without_lock()) return;
  if (Auxiliary::value(AT_SECURE) != 0 || is_linked_into_program()) return;
  const SignalAction action = SignalAction::calling(&on_request, SA_RESTART | SA_ONSTACK);
  const SignalAction before = action.set_for(kStopSignal);
  resting_handler.store(&on_request, std::memory_order_relaxed);
  // Programs that this one executes inherit that a signal is ignored.
  if (!before.is_default()) before.set_for(kStopSignal);
}

}  // namespace allod::attach

#else

namespace allod::attach {

void watch() noexcept {}

}  // namespace allod::attach

#endif
