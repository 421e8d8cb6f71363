// A plug-in for qemu's user-mode emulation: counts the cache lines that travel between cores.
//
// Each thread of the program stands for a core with an endless cache. Threads run in turns of a few
// memory accesses, so that they interleave as on a machine with a core for each. A line travels
// when a core reads what another one wrote last, or writes what another one holds. An atomic
// operation is one write. The first touch of a line moves nothing.
//
// Options: out=FILE, to which the result goes at the end; turn=ACCESSES, the mean length of a turn;
// of=PATH, the file whose code is counted apart. The program starts and ends the count by
// write(-1, NULL, 1) and write(-1, NULL, 0). The result:
//   total ACCESSES READS WRITES APART   lines that came for a read and for a write; those that came
//                                       for instructions of the file
//   place COUNT OFFSET PATH             of each instruction for which lines came; OFFSET is from
//                                       where the file's address 0 was loaded
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "qemu_plugin.h"

enum { kCores = 512, kCoreWords = kCores / 64, kLineShift = 6 };

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static char out_path[4096];
static char apart_path[4096];
static unsigned mean_turn = 20;

static void fail(const char* what) {
  fprintf(stderr, "lines: %s\n", what);
  abort();
}

// --- turns ---------------------------------------------------------------------------------------

// A core is away while its thread is in a system call, or does not exist.
typedef enum { kAway, kQueued, kOnTurn } CoreState;
typedef struct {
  CoreState state;
  unsigned uncounted;  // accesses that it may make outside of its turns
  pthread_cond_t may_go;
} Core;

static pthread_mutex_t turns_lock = PTHREAD_MUTEX_INITIALIZER;
static Core cores[kCores];
static _Atomic int current = -1;  // the core on turn, or -1
static unsigned left;             // accesses of that turn
static uint64_t turns;

// Between 1 and twice the mean: turns of one length could keep step with a loop of the program.
static unsigned next_length(void) {
  static uint64_t state = 0x9E3779B97F4A7C15u;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return 1 + (unsigned)(state % (2u * mean_turn - 1));
}

static void begin_turn(unsigned core) {
  current = (int)core;
  cores[core].state = kOnTurn;
  left = next_length();
  ++turns;
}

static void end_turn(void) {
  const unsigned after = (unsigned)current + 1;
  current = -1;
  for (unsigned step = 0; step < kCores; ++step) {
    const unsigned core = (after + step) % kCores;
    if (cores[core].state != kQueued) continue;
    begin_turn(core);
    pthread_cond_signal(&cores[core].may_go);
    return;
  }
}

// Waits until the core is on turn. The emulator sometimes stops all threads, and one that waits
// here does not see it. So if no turn begins for a while, the core goes on without one, uncounted.
static bool wait_in_queue(unsigned core) {
  enum { kPatienceNs = 20 * 1000 * 1000, kUncounted = 24 };
  cores[core].state = kQueued;
  if (current < 0) begin_turn(core);
  for (uint64_t seen = turns - 1; current != (int)core;) {
    if (seen == turns) {
      cores[core].state = kAway;
      cores[core].uncounted = kUncounted;
      return false;
    }
    seen = turns;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += kPatienceNs;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    while (current != (int)core &&
           pthread_cond_timedwait(&cores[core].may_go, &turns_lock, &end) != ETIMEDOUT) {
    }
  }
  return true;
}

// Before an access: whether it counts, which it does in a turn alone.
static bool take_part(unsigned core) {
  if (current == (int)core && left > 0) {
    --left;
    return true;
  }
  if (current != (int)core && cores[core].uncounted > 0) {
    --cores[core].uncounted;
    return false;
  }
  pthread_mutex_lock(&turns_lock);
  if (current == (int)core) {
    // At the end of its turn: the others first.
    cores[core].state = kAway;
    end_turn();
  }
  const bool counts = wait_in_queue(core);
  if (counts) --left;
  pthread_mutex_unlock(&turns_lock);
  return counts;
}

static void go_away(unsigned core) {
  pthread_mutex_lock(&turns_lock);
  cores[core].state = kAway;
  if (current == (int)core) end_turn();
  pthread_mutex_unlock(&turns_lock);
}

// --- lines; the core on turn changes them --------------------------------------------------------

typedef struct {
  uint64_t number;  // the address's upper bits, plus 1; 0: no line
  int changed_by;   // the core that alone holds it, changed; or -1
  uint64_t held_by[kCoreWords];
} Line;

// Open addressing. Grows while it is more than half full.
static Line* lines;
static uint64_t line_room = 1u << 16;
static uint64_t line_count;

static Line* place_of(Line* table, uint64_t room, uint64_t number) {
  uint64_t at = (number * 0x9E3779B97F4A7C15u) >> 24;
  while (table[at & (room - 1)].number != 0 && table[at & (room - 1)].number != number) ++at;
  return &table[at & (room - 1)];
}

static void grow(void) {
  Line* const wider = calloc(2 * line_room, sizeof *wider);
  if (wider == NULL) fail("out of memory");
  for (uint64_t at = 0; at < line_room; ++at) {
    if (lines[at].number != 0) *place_of(wider, 2 * line_room, lines[at].number) = lines[at];
  }
  free(lines);
  lines = wider;
  line_room *= 2;
}

static Line* line_at(uint64_t address) {
  const uint64_t number = (address >> kLineShift) + 1;
  Line* line = place_of(lines, line_room, number);
  if (line->number == number) return line;
  if (++line_count > line_room / 2) {
    grow();
    line = place_of(lines, line_room, number);
  }
  line->number = number;
  line->changed_by = -1;
  return line;
}

static uint64_t bit_in(unsigned core, unsigned word) {
  return core / 64 == word ? (uint64_t)1 << core % 64 : 0;
}

static bool has_other_holder(const Line* line, unsigned core) {
  uint64_t others = 0;
  for (unsigned word = 0; word < kCoreWords; ++word) {
    others |= line->held_by[word] & ~bit_in(core, word);
  }
  return others != 0;
}

// Both return whether the line travels to the core.
static bool load(Line* line, unsigned core) {
  if (line->changed_by == (int)core) return false;
  const uint64_t own = bit_in(core, core / 64);
  const bool travels = line->changed_by >= 0 && (line->held_by[core / 64] & own) == 0;
  line->held_by[core / 64] |= own;
  line->changed_by = -1;
  return travels;
}
static bool store(Line* line, unsigned core) {
  if (line->changed_by == (int)core) return false;
  const bool travels = has_other_holder(line, core);
  memset(line->held_by, 0, sizeof line->held_by);
  line->held_by[core / 64] = bit_in(core, core / 64);
  line->changed_by = (int)core;
  return travels;
}

// --- counts --------------------------------------------------------------------------------------

// An instruction with accesses to memory. Never freed: translations refer to them.
typedef struct Instruction {
  struct Instruction* next;
  uint64_t address;
  uint64_t count;  // of lines that came for it
} Instruction;

static pthread_mutex_t instructions_lock = PTHREAD_MUTEX_INITIALIZER;
static Instruction* instructions;
static bool is_counting;
static uint64_t accesses, came_for_loads, came_for_stores;

static void on_access(unsigned core, AccessInfo info, uint64_t address, void* context) {
  if (core >= kCores) fail("too many threads");
  if (!take_part(core)) return;
  const bool is_store = qemu_plugin_mem_is_store(info);
  Line* const line = line_at(address);
  const bool travels = is_store ? store(line, core) : load(line, core);
  if (!is_counting) return;
  ++accesses;
  if (!travels) return;
  ++*(is_store ? &came_for_stores : &came_for_loads);
  ++((Instruction*)context)->count;
}

static void on_translation(PluginId id, struct qemu_plugin_tb* code) {
  (void)id;
  const size_t count = qemu_plugin_tb_n_insns(code);
  for (size_t index = 0; index < count; ++index) {
    struct qemu_plugin_insn* const found = qemu_plugin_tb_get_insn(code, index);
    Instruction* const instruction = calloc(1, sizeof *instruction);
    if (instruction == NULL) fail("out of memory");
    instruction->address = qemu_plugin_insn_vaddr(found);
    pthread_mutex_lock(&instructions_lock);
    instruction->next = instructions;
    instructions = instruction;
    pthread_mutex_unlock(&instructions_lock);
    qemu_plugin_register_vcpu_mem_cb(found, on_access, kNoRegisters, kLoadsAndStores, instruction);
  }
}

static void on_system_call(PluginId id, unsigned core, int64_t number, uint64_t a1, uint64_t a2,
                           uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7,
                           uint64_t a8) {
  (void)id, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
  if (core >= kCores) return;
  if (number == SYS_write && (int)a1 == -1 && a2 == 0) is_counting = a3 != 0;
  go_away(core);
}

static void on_thread_end(PluginId id, unsigned core) {
  (void)id;
  if (core < kCores) go_away(core);
}

// --- the result ----------------------------------------------------------------------------------

typedef struct {
  uint64_t begin, end, offset;
  char path[1024];
} Mapping;

// The mappings of files, from /proc/self/maps: the emulator maps them where the program sees them.
static size_t read_mappings(Mapping* found, size_t most) {
  FILE* const file = fopen("/proc/self/maps", "r");
  char text[2048];
  size_t count = 0;
  while (file != NULL && count < most && fgets(text, sizeof text, file) != NULL) {
    Mapping* const one = &found[count];
    const int fields = sscanf(text, "%lx-%lx %*s %lx %*s %*s %1023[^\n]", &one->begin, &one->end,
                              &one->offset, one->path);
    if (fields == 4 && one->path[0] == '/') ++count;
  }
  if (file != NULL) fclose(file);
  return count;
}

// A file's address 0 is where its first mapping begins.
static void write_places(FILE* out, uint64_t* apart) {
  enum { kMost = 4096 };
  static Mapping mappings[kMost];
  const size_t count = read_mappings(mappings, kMost);
  for (const Instruction* each = instructions; each != NULL; each = each->next) {
    if (each->count == 0) continue;
    const char* path = "-";
    uint64_t base = 0;
    for (size_t at = 0; at < count; ++at) {
      const Mapping* const one = &mappings[at];
      if (one->offset == 0 && one->begin <= each->address) base = one->begin;
      if (one->begin <= each->address && each->address < one->end) path = one->path;
    }
    if (strcmp(path, apart_path) == 0) *apart += each->count;
    fprintf(out, "place %lu %#lx %s\n", each->count, each->address - base, path);
  }
}

static void on_end(PluginId id, void* context) {
  (void)id, (void)context;
  FILE* const out = fopen(out_path, "w");
  if (out == NULL) fail("the result cannot be written");
  uint64_t apart = 0;
  write_places(out, &apart);
  fprintf(out, "total %lu %lu %lu %lu\n", accesses, came_for_loads, came_for_stores, apart);
  fclose(out);
}

__attribute__((visibility("default"))) int qemu_plugin_install(PluginId id,
                                                               const struct qemu_info_t* info,
                                                               int count, char** options) {
  (void)info;
  for (int at = 0; at < count; ++at) {
    sscanf(options[at], "out=%4095[^\n]", out_path);
    sscanf(options[at], "of=%4095[^\n]", apart_path);
    sscanf(options[at], "turn=%u", &mean_turn);
  }
  lines = calloc(line_room, sizeof *lines);
  if (lines == NULL || out_path[0] == '\0' || mean_turn == 0) return -1;
  for (unsigned core = 0; core < kCores; ++core) pthread_cond_init(&cores[core].may_go, NULL);
  qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
  qemu_plugin_register_vcpu_syscall_cb(id, on_system_call);
  qemu_plugin_register_vcpu_exit_cb(id, on_thread_end);
  qemu_plugin_register_atexit_cb(id, on_end, NULL);
  return 0;
}
