// Layer 5: what happens when there is no memory.
#include <gtest/gtest.h>

#include <utility>

#include "heap_world.hpp"

namespace allod::test {
namespace {

class HeapWithoutMemory : public testing::TestWithParam<std::size_t> {
 protected:
  using Domain = FakeProgram::Domain;

  static std::unique_ptr<FakeProgram> make(std::size_t page_size) {
    auto program = std::make_unique<FakeProgram>();
    program->system().set_page_size(page_size);
    return program;
  }
  static heap::HeapOptions options() {
    heap::HeapOptions options;
    options.region_bytes = kMiB;
    options.purge_delay_ms = 0;
    return options;
  }
  // A few bytes of a block, the first and the last among them, say how large it is.
  static void mark(void* block, std::size_t size) {
    auto* const byte = static_cast<unsigned char*>(block);
    for (const std::size_t at : {std::size_t{0}, size / 3, size - 1})
      byte[at] = static_cast<unsigned char>(size % 251);
  }
  static bool is_marked(const unsigned char* block, std::size_t size) {
    return block[0] == size % 251 && block[size / 3] == size % 251 && block[size - 1] == size % 251;
  }
  // Two threads do a bit of everything. Returns whether everything was served; whatever was not,
  // nothing may be lost or torn.
  static bool play_scenario(FakeProgram& program) {
    auto& heap = program.heap();
    bool served = true;
    std::vector<std::pair<unsigned char*, std::size_t>> blocks;
    const auto note = [&](void* block, std::size_t size) {
      served &= block != nullptr;
      if (block == nullptr) return;
      mark(block, size);
      blocks.emplace_back(static_cast<unsigned char*>(block), size);
    };
    const auto free_some = [&](Domain* domain, std::size_t stride) {
      std::vector<std::pair<unsigned char*, std::size_t>> kept;
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        const auto& [block, size] = blocks[i];
        EXPECT_TRUE(is_marked(block, size));
        if (i % stride != 0) {
          kept.push_back(blocks[i]);
        } else if (domain == nullptr) {
          heap.release_detached(block);
        } else {
          program.release(*domain, block);
        }
      }
      blocks = kept;
    };
    Domain* const one = heap.attach();
    Domain* const two = heap.attach();
    served &= one != nullptr && two != nullptr;
    for (Domain* const domain : {one, two}) {
      if (domain == nullptr) continue;
      for (const std::size_t size : {8U, 64U, 1000U, 5000U, 40'000U, 300'000U, 3'000'000U}) {
        for (int i = 0; i < 12; ++i) note(program.allocate(*domain, size), size);
      }
      note(heap.allocate_aligned(*domain, 100, 4096, nullptr), 100);
      note(heap.allocate_aligned(*domain, kMiB, 4 * kMiB, nullptr), kMiB);
    }
    heap.check_invariants();
    free_some(two, 3);
    free_some(one, 2);
    heap.check_invariants();
    for (auto& [block, size] : blocks) {
      if (size < 1000 || one == nullptr) continue;
      const std::size_t larger = size + size / 3;
      void* const moved = program.resize(*one, block, larger);
      if (moved == nullptr) continue;
      EXPECT_GE(heap.usable_size(moved), larger);
      block = static_cast<unsigned char*>(moved);
      size = larger;
      mark(block, size);
    }
    if (one != nullptr) {
      heap.trim(*one);
      heap.detach(*one);
    }
    heap.check_invariants();
    if (two != nullptr) {
      for (int i = 0; i < 300; ++i) note(program.allocate(*two, 500), 500);
    }
    free_some(two, 1);
    if (two != nullptr) heap.detach(*two);
    heap.check_invariants();
    return served;
  }
  // After every failure everything can be had again, and nothing has stayed behind.
  static void expect_recovery(FakeProgram& program, std::uint64_t after) {
    auto& heap = program.heap();
    program.system().succeed();
    EXPECT_TRUE(play_scenario(program)) << "after failure " << after;
    Domain* const domain = heap.attach();
    ASSERT_NE(domain, nullptr);
    heap.trim(*domain);
    heap.detach(*domain);
    heap.check_invariants();
    EXPECT_TRUE(RecordingReporter::reports.empty());
  }
};
INSTANTIATE_TEST_SUITE_P(pages, HeapWithoutMemory, testing::Values(4096, 16384, 65536));

TEST_P(HeapWithoutMemory, serves_what_it_can_whichever_call_fails) {
  for (std::uint64_t nth = 1;; nth += 1 + nth / 20) {
    ASSERT_LT(nth, 100'000U);
    const auto program = make(GetParam());
    program->system().fail_nth_call(nth);
    program->start(options());
    play_scenario(*program);
    if (program->system().injected_failures() == 0) break;
    if (program->heap().attach() == nullptr) continue;  // it did not even start
    expect_recovery(*program, nth);
  }
}

TEST_P(HeapWithoutMemory, refuses_cleanly_when_everything_fails_from_some_call_on) {
  std::uint64_t refusals = 0;
  for (std::uint64_t nth = 1;; nth += 1 + nth / 20) {
    ASSERT_LT(nth, 100'000U);
    const auto program = make(GetParam());
    program->system().fail_from_call(nth);
    program->start(options());
    refusals += play_scenario(*program) ? 0 : 1;
    if (program->system().injected_failures() == 0) break;
    program->system().succeed();
    if (program->heap().attach() == nullptr) continue;
    expect_recovery(*program, nth);
  }
  EXPECT_GT(refusals, 10U) << "failures reach the caller";
}

TEST_P(HeapWithoutMemory, refuses_cleanly_when_memory_ends) {
  for (std::size_t bytes = 0; bytes < 24 * kMiB; bytes += 11 * kSliceBytes) {
    const auto program = make(GetParam());
    program->start(options());
    program->system().set_memory_limit(bytes + 1);
    play_scenario(*program);
    program->system().set_memory_limit(0);
    expect_recovery(*program, bytes);
  }
}

TEST_P(HeapWithoutMemory, lives_within_a_small_address_space) {
  for (std::size_t limit = 2 * kMiB; limit < 48 * kMiB; limit += 3 * kMiB) {
    const auto program = make(GetParam());
    program->system().set_address_space_limit(limit);
    program->start(options());
    play_scenario(*program);
    EXPECT_LE(program->system().mapped_bytes(), limit);
    EXPECT_TRUE(RecordingReporter::reports.empty());
  }
}

TEST_P(HeapWithoutMemory, never_starts_without_addresses_and_says_so) {
  const auto program = make(GetParam());
  program->system().fail_from_call(1);
  program->start(options());
  EXPECT_EQ(program->heap().attach(), nullptr);
  int on_stack = 0;
  program->heap().release_detached(&on_stack);
  EXPECT_EQ(program->heap().usable_size(&on_stack), 0U);
}

}  // namespace
}  // namespace allod::test
