// Allod as a zone of libmalloc, blocks of other zones, and operators.
#include <allod.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include <set>

#include "cases.h"
#include "libsystem.hpp"

using libsystem::first_zone;
using libsystem::Zone;

extern "C" {
void* interposed_malloc(size_t size);
void* interposed_realloc(void* block, size_t size);
void interposed_free(void* block);
size_t interposed_malloc_size(const void* block);
size_t interposed_malloc_good_size(size_t size);
void* library__Znwm(size_t size);
void library__ZdlPv(void* block);
void* library__ZnwmSt11align_val_t(size_t size, size_t alignment);
void library__ZdlPvSt11align_val_t(void* block, size_t alignment);
void* library__ZnwmRKSt9nothrow_t(size_t size, const void* nothrow);
}

namespace {

void it_is_the_default_one() {
  CHECK(strcmp(first_zone()->name, "Allod") == 0);
  CHECK(first_zone()->version == 10);
}

void its_functions_are_allods() {
  Zone* const zone = first_zone();
  void* block = zone->malloc(zone, 100);
  CHECK(zone->size(zone, block) >= 100 && allod_malloc_usable_size(block) >= 100);
  block = zone->realloc(zone, block, 100000);
  CHECK(zone->size(zone, block) >= 100000);
  CHECK(zone->claimed_address(zone, static_cast<char*>(block) + 50000) == 1);
  zone->free(zone, block);
  auto* const zeros = static_cast<unsigned char*>(zone->calloc(zone, 100, 100));
  for (int i = 0; i < 10000; ++i) CHECK(zeros[i] == 0);
  zone->free_definite_size(zone, zeros, 10000);
  block = zone->memalign(zone, 4096, 10);
  CHECK(reinterpret_cast<size_t>(block) % 4096 == 0);
  zone->free(zone, block);
  block = zone->valloc(zone, 10);
  CHECK(reinterpret_cast<size_t>(block) % 4096 == 0);
  zone->free(zone, block);
  void* many[50];
  CHECK(zone->batch_malloc(zone, 64, many, 50) == 50);
  CHECK(std::set<void*>(many, many + 50).size() == 50);
  zone->batch_free(zone, many, 50);
  zone->pressure_relief(zone, 0);
}

void it_does_not_know_blocks_of_others() {
  Zone* const zone = first_zone();
  void* const theirs = malloc(100);
  CHECK(zone->size(zone, theirs) == 0);
  CHECK(zone->claimed_address(zone, theirs) == 0);
  CHECK(zone->size(zone, &zone) == 0);
  free(theirs);
}

void blocks_of_others_go_back_to_them() {
  for (int i = 0; i < 100; ++i) {
    void* const theirs = malloc(100);
    CHECK(interposed_malloc_size(theirs) == malloc_usable_size(theirs));
    void* const changed = interposed_realloc(theirs, 5000);
    CHECK(allod_malloc_usable_size(changed) == 0);
    interposed_free(changed);
  }
  void* const ours = interposed_malloc(100);
  CHECK(interposed_malloc_size(ours) >= 100);
  CHECK(interposed_malloc_size(ours) == interposed_malloc_good_size(100));
  interposed_free(ours);
}

void resizing_to_nothing_gives_the_least_block() {
  void* const block = interposed_realloc(interposed_malloc(100), 0);
  CHECK(block != NULL && interposed_malloc_size(block) > 0);
  interposed_free(block);
}

void operators_are_allods() {
  void* block = library__Znwm(100);
  CHECK(allod_malloc_usable_size(block) >= 100);
  library__ZdlPv(block);
  block = library__ZnwmSt11align_val_t(1000, 256);
  CHECK(allod_malloc_usable_size(block) >= 1000 && reinterpret_cast<size_t>(block) % 256 == 0);
  library__ZdlPvSt11align_val_t(block, 256);
  const volatile size_t too_much = SIZE_MAX / 2;
  CHECK(library__ZnwmRKSt9nothrow_t(too_much, NULL) == NULL);
}

struct Seen {
  std::set<uint64_t> in_use;
  uint64_t bytes = 0;
};
void note(uint32_t, void* context, unsigned kinds, libsystem::Range* ranges, unsigned count) {
  auto& seen = *static_cast<Seen*>(context);
  for (unsigned i = 0; i < count; ++i) {
    if ((kinds & 1) != 0) seen.in_use.insert(ranges[i].address);
    if ((kinds & 2) != 0) seen.bytes += ranges[i].bytes;
  }
}
void it_answers_questions() {
  Zone* const zone = first_zone();
  const libsystem::Introspection& ask = *zone->introspect;
  void* const large = zone->malloc(zone, 10 << 20);
  Seen seen;
  CHECK(ask.enumerator(libsystem::own_task, &seen, 3, 0, NULL, &note) == 0);
  CHECK(seen.in_use.count(reinterpret_cast<uint64_t>(large)) == 1);
  CHECK(seen.bytes >= 10 << 20);
  CHECK(ask.enumerator(libsystem::own_task + 1, &seen, 3, 0, NULL, &note) == 46);
  libsystem::Statistics statistics{};
  ask.statistics(zone, &statistics);
  CHECK(statistics.blocks_in_use >= 1 && statistics.size_in_use >= 10 << 20);
  CHECK(statistics.size_allocated >= statistics.size_in_use);
  CHECK(ask.good_size(zone, 100) == zone->size(zone, zone->malloc(zone, 100)));
  CHECK(ask.check(zone) == 1 && ask.zone_locked(zone) == 0);
  ask.force_lock(zone);
  ask.force_unlock(zone);
  ask.reinit_lock(zone);
  zone->free(zone, large);
}

}  // namespace

extern "C" int program_main(int argc, char** argv) {
  static const test_case cases[] = {
      {"it_is_the_default_one", it_is_the_default_one},
      {"its_functions_are_allods", its_functions_are_allods},
      {"it_does_not_know_blocks_of_others", it_does_not_know_blocks_of_others},
      {"blocks_of_others_go_back_to_them", blocks_of_others_go_back_to_them},
      {"resizing_to_nothing_gives_the_least_block", resizing_to_nothing_gives_the_least_block},
      {"operators_are_allods", operators_are_allods},
      {"it_answers_questions", it_answers_questions},
  };
  return run_cases(cases, sizeof cases / sizeof cases[0], argc, argv);
}
