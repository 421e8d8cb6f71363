// Start and end of the server's thread.
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "allod-live.h"
#include "libc/next_function.hpp"
#include "libc/stop_signal.hpp"
#include "memory.hpp"
#include "moments.hpp"
#include "reports.hpp"
#include "server.hpp"
#include "settings.hpp"
#include "symbols.hpp"
#include "text/text.hpp"

extern "C" int __real_dl_iterate_phdr(int (*visit)(dl_phdr_info*, size_t, void*), void* context);

namespace allod::live {

namespace {

constexpr std::size_t kStackBytes = std::size_t{512} << 10;

struct Life {
  // Serialises starts and stops.
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  bool running = false;
  std::atomic<bool> ended{false};  // of itself, as it was asked to; its thread is to be joined
  pthread_t thread{};
  Server* server = nullptr;
  char address[256] = {};
  // The starting thread waits for these.
  pthread_mutex_t started_mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t started_changed = PTHREAD_COND_INITIALIZER;
  bool started = false;
  int result = -1;
  const char* why = "";
};
constinit Life life;
// The page of the parent at the fork, for a daemon; empty: none.
constinit char left_page[512] = {};
constinit pid_t left_parent = 0;

// Switches to a descriptor table of this thread's own. Programs that close, count or pass on all
// descriptors do not meet the server's, and the server holds none of theirs.
bool leave_descriptors() noexcept {
#ifdef SYS_close_range
  constexpr unsigned kUnshare = 2;
  if (syscall(SYS_close_range, 3U, ~0U, kUnshare) == 0) return true;
#endif
  if (unshare(CLONE_FILES) != 0) return false;
  const long most = sysconf(_SC_OPEN_MAX);
  for (int file = 3; file < (most > 0 && most < 65536 ? most : 65536); ++file) close(file);
  return true;
}
// Standard descriptors are kept until the link has been written.
void leave_standard_descriptors() noexcept {
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int file = 0; file < 3; ++file) {
    if (nothing < 0) {
      close(file);
    } else if (nothing != file) {
      dup2(nothing, file);
    }
  }
  if (nothing > 2) close(nothing);
}

void write_link(const char* link) noexcept {
  const char* const pattern = settings().link_file;
  char path[sizeof settings().link_file + 16];
  if (const char* const process = strstr(pattern, "%p"); process != nullptr) {
    snprintf(path, sizeof path, "%.*s%d%s", static_cast<int>(process - pattern), pattern, getpid(),
             process + 2);
  } else {
    strcpy(path, pattern);
  }
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) {
    Message{} << "warning: the link of the live page cannot be written to " << path;
    return;
  }
  char line[600];
  const int length = snprintf(line, sizeof line, "%s\n", link);
  if (write(file, line, static_cast<std::size_t>(length)) != length) {
    Message{} << "warning: the link of the live page is not whole in " << path;
  }
  close(file);
}

void tell(bool as_wished) noexcept {
  if (life.result == 0 && settings().was_told) return;
  if (life.result != 0) {
    if (as_wished) Message{} << "warning: no live page: " << life.why;
  } else if (settings().link_file[0] != '\0') {
    write_link(life.server->link());
  } else if (as_wished) {
    Message{} << "live page of process " << std::int64_t{getpid()} << ": " << life.server->link();
  }
}

// Offers the link to `allod top` in a sealed memory file of this thread's table. /proc shows it
// only to processes that may inspect this one. It ends with the server.
void offer_link(const char* link) noexcept {
  const int file = memfd_create("allod-live-link", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return;
  const auto length = static_cast<ssize_t>(strlen(link));
  fchmod(file, 0400);
  if (write(file, link, static_cast<std::size_t>(length)) != length) {
    close(file);
    return;
  }
  fcntl(file, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
}

void tell_starter() noexcept {
  pthread_mutex_lock(&life.started_mutex);
  life.started = true;
  pthread_cond_signal(&life.started_changed);
  pthread_mutex_unlock(&life.started_mutex);
}

void open_and_run(void* as_wished) noexcept {
  life.result = ENOTSUP;
  life.why = "the system gives the server no descriptors of its own";
  const bool apart = leave_descriptors();
  if (apart) life.result = life.server->open(life.address, &life.why) ? 0 : EADDRNOTAVAIL;
  if (life.result == 0) offer_link(life.server->link());
  tell(as_wished != nullptr);
  if (apart) leave_standard_descriptors();
  const bool runs = life.result == 0;
  tell_starter();
  if (runs) life.server->run();
}

// If the server fails, its connections and descriptors are abandoned, and the program continues.
void* serve(void* as_wished) noexcept {
  prctl(PR_SET_NAME, "allod-live", 0, 0, 0);
  if (with_events(&open_and_run, as_wished)) {
    life.ended.store(true);
  } else if (!life.started) {
    life.result = ENOTSUP;
    tell_starter();
  }
  return nullptr;
}

void give_up_server() noexcept {
  life.server->~Server();
  release(life.server);
  life.server = nullptr;
}

enum class Start {
  called,         // by the API: the result reports errors
  wished,         // by the environment: messages report errors
  wished_at_fork  // the same, while the fork may still hold the heap
};

int create_thread(Start how) noexcept {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  // Blocks the program's signals, but not those that stop threads for a leak search.
  sigset_t every;
  sigset_t before;
  sigfillset(&every);
  sigdelset(&every, kStopSignal);
  sigdelset(&every, kSecondStopSignal);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  void* const as_wished = how == Start::called ? nullptr : &life;
  const int error = pthread_create(&life.thread, &attributes, &serve, as_wished);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return error;
}

// Requires the mutex. Returns once the server listens or has failed; at a fork, at once.
int start_thread(Start how) noexcept {
  void* const memory = allocate(sizeof(Server));
  if (memory == nullptr) return ENOMEM;
  life.server = new (memory) Server;
  life.started = false;
  const int error = create_thread(how);
  life.running = error == 0;
  if (life.running && how != Start::wished_at_fork) {
    pthread_mutex_lock(&life.started_mutex);
    while (!life.started) pthread_cond_wait(&life.started_changed, &life.started_mutex);
    pthread_mutex_unlock(&life.started_mutex);
    life.running = life.result == 0;
    if (!life.running) {
      pthread_join(life.thread, nullptr);
      life.ended.store(false);
    }
  }
  if (life.running) return 0;
  give_up_server();
  return error != 0 ? error : life.result;
}

// Warns for any kind of start: the program is set up wrongly, and callers often ignore the result.
bool can_start() noexcept {
  if (!has_library()) {
    Message{} << "warning: no live page: liballod.so is not in this process";
    return false;
  }
  return open_memory();
}

// Requires the mutex.
void clear_away() noexcept {
  pthread_join(life.thread, nullptr);
  give_up_server();
  life.running = false;
  life.ended.store(false);
  forget_moments();
}

int start_at(const char* address, Start how) noexcept {
  if (!can_start()) return ENOTSUP;
  pthread_mutex_lock(&life.mutex);
  if (life.running && life.ended.load()) clear_away();
  int result = EALREADY;
  if (!life.running) {
    const int length = snprintf(life.address, sizeof life.address, "%s", address);
    result = length < static_cast<int>(sizeof life.address) ? start_thread(how) : EINVAL;
  }
  pthread_mutex_unlock(&life.mutex);
  return result;
}

void stop_now() noexcept {
  pthread_mutex_lock(&life.mutex);
  if (life.running) {
    life.server->stop();
    clear_away();
  }
  pthread_mutex_unlock(&life.mutex);
}

void mark_timeline(const char* label) noexcept {
  pthread_mutex_lock(&life.mutex);
  if (life.running) life.server->mark(label);
  pthread_mutex_unlock(&life.mutex);
}

void start_as_wished(Start how) noexcept {
  const char* const wish = settings().address;
  // Values such as "1" mean any free port.
  const bool anywhere = strchr(wish, ':') == nullptr;
  int error = start_at(anywhere ? "127.0.0.1:0" : wish, how);
  if (error != 0 && settings().was_told) {
    // Another process has taken the port meanwhile.
    settings().was_told = false;
    error = start_at("127.0.0.1:0", how);
  }
  if (error != 0) return;
  if (how == Start::wished && settings().only != 0) keep_page(life.server->link());
  // Starts the profile, unless the user chose it on or off. A child inherits its parent's.
  if (how == Start::wished && has_profile() && getenv("ALLOD_PROFILE") == nullptr)
    allod_profile_start(0);
}

// The child has neither the parent's thread nor its descriptors. The parent's heap is abandoned:
// deleting it might wait for the fork to end.
void after_fork_in_child() noexcept {
  const bool was_running = life.running;
  left_page[0] = '\0';
  if (was_running && life.server != nullptr) {
    snprintf(left_page, sizeof left_page, "%s", life.server->link());
    left_parent = getppid();
  }
  new (&life) Life;
  drop_symbols();
  drop_reports();
  drop_moments();
  drop_memory();
  if (was_running && settings().wanted && settings().children) {
    // The parent's port is taken.
    settings().address[0] = '\0';
    start_as_wished(Start::wished_at_fork);
  }
}

// A process whose parent ends and that leaves its session is a daemon, and takes the page over, at
// the same address if that can be had. The parent ends soon as a rule. Where it goes on, the page
// is the parent's.
void become_daemon() noexcept {
  if (left_page[0] == '\0' || life.running || !settings().wanted) return;
  choose_page(left_page);
  left_page[0] = '\0';
  constexpr int kTries = 20;
  const timespec moment{0, 10'000'000};
  settings().was_told = true;
  for (int i = 0; i < kTries; ++i) {
    if (start_at(settings().address, Start::called) == 0) return;
    nanosleep(&moment, nullptr);
  }
  settings().was_told = false;
  settings().address[0] = '\0';
  if (getppid() == left_parent) return;
  start_as_wished(Start::wished);
}

// Whether the object with the first address precedes the other in the loader's list.
bool comes_first(const void* one, const void* other) noexcept {
  struct Search {
    std::uintptr_t wanted[2];
    int found = -1;
  } search{{reinterpret_cast<std::uintptr_t>(one), reinterpret_cast<std::uintptr_t>(other)}};
  const auto visit = [](dl_phdr_info* info, std::size_t, void* context) {
    auto& to = *static_cast<Search*>(context);
    for (int header = 0; header < info->dlpi_phnum; ++header) {
      const auto& it = info->dlpi_phdr[header];
      const std::uintptr_t from = info->dlpi_addr + it.p_vaddr;
      for (int which = 0; which < 2 && it.p_type == PT_LOAD; ++which) {
        const std::uintptr_t at = to.wanted[which];
        if (to.found < 0 && at >= from && at - from < it.p_memsz) to.found = which;
      }
    }
    return to.found < 0 ? 0 : 1;
  };
  __real_dl_iterate_phdr(visit, &search);
  return search.found == 0;
}

// Objects are initialised from the end of the list, and a child runs fork handlers in the order of
// registration. Allod's must run before the one that starts a server.
void check_order() noexcept {
  const auto* const ours = reinterpret_cast<const void*>(&allod_live_start);
  const auto* const theirs = reinterpret_cast<const void*>(&allod_version);
  if (!settings().children || !has_library() || comes_first(ours, theirs)) return;
  Message{} << "warning: children serve no page: liballod-live.so has to be preloaded before "
               "liballod.so";
  settings().children = false;
}

[[gnu::constructor]] void begin() noexcept {
  // A program with elevated rights (AT_SECURE) must not open a port for its caller.
  if (getauxval(AT_SECURE) != 0 || !read_settings()) return;
  pthread_atfork(&hold_symbols, &let_go_symbols, &after_fork_in_child);
  const Settings& chosen = settings();
  check_order();
  const bool is_chosen = chosen.only < 0 ? -chosen.only == getppid() : chosen.only == getpid();
  const bool here = chosen.only == 0 || is_chosen || chosen.children;
  if (chosen.wanted && here) start_as_wished(Start::wished);
}

}  // namespace

}  // namespace allod::live

namespace live = allod::live;

// In front of libc's, for daemons. libc's daemon() calls its own setsid().
extern "C" [[gnu::visibility("default")]] pid_t setsid() noexcept {
  const auto session = static_cast<pid_t>(syscall(SYS_setsid));
  if (session >= 0) live::become_daemon();
  return session;
}
extern "C" [[gnu::visibility("default")]] int daemon(int stay, int keep) noexcept {
  static constinit std::atomic<int (*)(int, int)> known{nullptr};
  const auto next = allod::next_function(known, "daemon");
  if (next == nullptr) {
    errno = ENOSYS;
    return -1;
  }
  const int result = next(stay, keep);
  if (result == 0) live::become_daemon();
  return result;
}

int allod_live_start(const char* address, uint16_t port) noexcept {
  char where[256];
  const char* const name = address == nullptr ? "127.0.0.1" : address;
  const bool is_v6 = strchr(name, ':') != nullptr;
  snprintf(where, sizeof where, is_v6 ? "[%s]:%u" : "%s:%u", name, unsigned{port});
  return live::start_at(where, live::Start::called);
}
void allod_live_stop() noexcept { live::stop_now(); }
const char* allod_live_link() noexcept {
  const bool serves = live::life.running && live::life.started && !live::life.ended.load();
  return serves ? live::life.server->link() : nullptr;
}
void allod_live_mark(const char* label) noexcept { live::mark_timeline(label); }
