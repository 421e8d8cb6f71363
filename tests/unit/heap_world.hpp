// A heap on a fake system, for the tests of layers 5 and 6.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "world.hpp"

namespace allod::test {

using heap::Misuse;
using heap::MisuseKind;
using os::Fake;
using slab::Slab;

constexpr std::size_t kKiB = std::size_t{1} << 10;
constexpr std::size_t kMiB = std::size_t{1} << 20;

// Every test ends in a check of everything, and expects no report that it did not ask about.
class HeapWorld : public testing::Test {
 protected:
  using Domain = FakeProgram::Domain;
  using Sizes = FakeProgram::Sizes;

  // Memory goes back only when a test says so.
  static heap::HeapOptions calm() {
    heap::HeapOptions options;
    options.region_bytes = 16 * kMiB;
    options.purge_delay_ms = -1;
    return options;
  }
  virtual heap::HeapOptions options() const { return calm(); }
  void SetUp() override { program.start(options()); }
  void TearDown() override {
    heap.check_invariants();
    for (const Misuse& misuse : RecordingReporter::reports) {
      ADD_FAILURE() << "unexpected report of kind " << static_cast<int>(misuse.kind);
    }
  }

  // The domain of a thread of its own.
  Domain& attach() {
    system.set_thread(++threads_);
    Domain* const domain = heap.attach();
    always_check(domain != nullptr, "no domain");
    return *domain;
  }
  void* allocate(Domain& domain, std::size_t size) { return program.allocate(domain, size); }
  std::vector<void*> allocate_many(Domain& domain, std::size_t count, std::size_t size) {
    std::vector<void*> blocks(count);
    for (void*& block : blocks) block = allocate(domain, size);
    return blocks;
  }
  void release(Domain& domain, void* block) { program.release(domain, block); }
  void release_all(Domain& domain, const std::vector<void*>& blocks) {
    for (void* const block : blocks) release(domain, block);
  }
  // Makes the domain look around: slow paths for nothing, of the smallest class.
  void pass_time(Domain& domain, int slow_operations) {
    for (int i = 0; i < slow_operations; ++i) release(domain, heap.allocate(domain, 1, nullptr));
  }
  static bool is_all(const void* block, std::size_t bytes, unsigned char value) {
    const auto* const byte = static_cast<const unsigned char*>(block);
    return std::all_of(byte, byte + bytes, [&](unsigned char b) { return b == value; });
  }
  std::size_t used() { return heap.space().counters().used; }
  // The reports since the last question.
  static std::vector<Misuse> reports() { return std::exchange(RecordingReporter::reports, {}); }
  static void expect_one(MisuseKind kind, const void* address) {
    const std::vector<Misuse> seen = reports();
    ASSERT_EQ(seen.size(), 1U);
    EXPECT_EQ(seen[0].kind, kind);
    EXPECT_EQ(seen[0].address, address);
  }

  FakeProgram program;
  FakeProgram::Heap& heap = program.heap();
  Fake& system = program.system();

 private:
  std::uint32_t threads_ = 0;
};

}  // namespace allod::test
