#include "children.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "json.hpp"
#include "memory.hpp"
#include "system.hpp"

namespace allod::live {

namespace {

struct Child {
  std::int64_t process;
  std::int64_t parent;
  std::uint64_t resident;  // bytes
  char name[17];
  bool is_ours;  // a descendant
};

// Visits the entries of a folder whose names are numbers. libc's functions for folders allocate in
// the program's heap.
template <class Visit>
void for_each_number(const char* folder, Visit&& visit) noexcept {
  const int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;
  alignas(8) char buffer[4096];
  for (;;) {
    const long got = syscall(SYS_getdents64, file, buffer, sizeof buffer);
    if (got <= 0) break;
    for (long at = 0; at < got;) {
      // The kernel's struct linux_dirent64: its length at byte 16, its name at byte 19.
      unsigned short length;
      memcpy(&length, buffer + at + 16, sizeof length);
      const char* const name = buffer + at + 19;
      if (*name >= '0' && *name <= '9') visit(atoll(name));
      at += length;
    }
  }
  close(file);
}

bool read_child(std::int64_t process, Child& to) noexcept {
  char path[64];
  char text[1024];
  snprintf(path, sizeof path, "/proc/%lld/stat", static_cast<long long>(process));
  if (read_file(path, text, sizeof text) == 0) return false;
  const char* const name = strchr(text, '(');
  // The name may hold brackets itself.
  const char* const end = strrchr(text, ')');
  if (name == nullptr || end == nullptr || end < name) return false;
  to = {};
  to.process = process;
  memcpy(to.name, name + 1,
         std::min<std::size_t>(sizeof to.name - 1, static_cast<std::size_t>(end - name - 1)));
  char state = 0;
  long long parent = 0;
  long long pages = 0;
  // Of the fields behind the name: the 1st, the 2nd and the 22nd.
  const int found = sscanf(end + 1,
                           " %c %lld %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                           "%*s %*s %*s %*s %lld",
                           &state, &parent, &pages);
  if (found != 3 || state == 'Z') return false;
  to.parent = parent;
  to.resident =
      static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return true;
}

// Reads the link that a server offers in its own table of descriptors. Empty if there is none.
void find_link(std::int64_t process, char (&link)[512]) noexcept {
  link[0] = '\0';
  char threads[64];
  snprintf(threads, sizeof threads, "/proc/%lld/task", static_cast<long long>(process));
  for_each_number(threads, [&](long long thread) {
    char path[128];
    char name[32];
    snprintf(path, sizeof path, "%s/%lld/comm", threads, thread);
    read_file(path, name, sizeof name);
    if (link[0] != '\0' || strncmp(name, "allod-live", 10) != 0) return;
    char files[96];
    snprintf(files, sizeof files, "%s/%lld/fd", threads, thread);
    for_each_number(files, [&](long long file) {
      char target[64] = {};
      snprintf(path, sizeof path, "%s/%lld", files, file);
      const ssize_t length = readlink(path, target, sizeof target - 1);
      if (length > 0 && strncmp(target, "/memfd:allod-live-link", 22) == 0) {
        read_file(path, link, sizeof link);
      }
    });
  });
}

void mark_descendants(Table<Child>& all) noexcept {
  for (bool found = true; found;) {
    found = false;
    for (Child& child : all) {
      if (child.is_ours) continue;
      bool ours = child.parent == getpid();
      for (const Child& other : all) ours |= other.is_ours && other.process == child.parent;
      child.is_ours = ours;
      found |= ours;
    }
  }
}

}  // namespace

bool write_children(evbuffer* to) noexcept {
  Table<Child> all;
  bool failed = false;
  for_each_number("/proc", [&](long long process) {
    Child child;
    if (read_child(process, child)) failed |= !all.push(child);
  });
  mark_descendants(all);
  Json json{to};
  json.object().array("rows");
  for (const Child& child : all) {
    if (!child.is_ours) continue;
    char link[512];
    find_link(child.process, link);
    json.object().field("process", child.process).field("parent", child.parent);
    json.field("name", static_cast<const char*>(child.name)).field("resident", child.resident);
    json.field("link", static_cast<const char*>(link)).end();
  }
  json.end().end();
  return json.finish() && !failed;
}

}  // namespace allod::live
