// The compositions that tests play with: each part in at least one of them.
#pragma once

#include <mutex>

#include "../unit/fake_platform.hpp"
#include "allod.hpp"

namespace allod::test {

using FakePages = SystemPages<256_KiB, os::Fake>;

struct Plain : Parts {
  using Sizes = FixedClasses<32, 64, 256>;
};
struct OddSizes : Parts {
  using Sizes = Classes<SizeClass<8, 4_KiB, 2>, SizeClass<24>, SizeClass<104, 64_KiB, 1>,
                        SizeClass<1000, 16_KiB>, SizeClass<5000>, SizeClass<40'000>>;
};
struct Powers : Parts {
  using Sizes = PowersOfTwo<8, 4096>;
  using Recycling = RecycleAtOnce<0>;
};
struct OneClass : Parts {
  using Sizes = OneSize<48>;
  using Recycling = RecycleWhenTold;
};
struct Delayed : Parts {
  using Sizes = GeometricClasses<16, 1024, 8>;
  using Pages = FakePages;
  using Recycling = RecycleAfter<50>;
};
struct Merged : Parts {
  using Sizes = NoClasses;
  using Storage = AnySize<>;
};
struct Unmerged : Parts {
  using Sizes = FixedClasses<64>;
  using Storage = AnySize<Merging::no, 128>;
  using Pages = FakePages;
  using Recycling = RecycleAtOnce<>;
};
struct Everything : Parts {
  using Storage = AnySize<>;
  using Threads = ThreadCaching<>;
};
struct Locking : Parts {
  using Storage = AnySize<>;
  using Threads = Central<std::mutex>;
};
struct Spinning : Parts {
  using Sizes = FixedClasses<16, 48>;
  using Threads = ThreadCaching<SpinLock>;
  using Pages = Reserved<8_MiB, 512_KiB>;
};
struct Watched : Parts {
  using Storage = AnySize<>;
  using Checks = Checked;
  using Observer = LeakReport;
};
struct Guarded : Parts {
  using Storage = AnySize<>;
  using Checks = Hardened;
};
struct GuardedClasses : Parts {
  using Sizes = FixedClasses<16, 64, 256, 1024>;
  using Pages = FakePages;
  using Threads = Central<>;
  using Checks = Hardened;
};
struct Transparent : Parts {
  using Storage = AnySize<>;
  using Pages = TransparentHuge<SystemPages<2_MiB>>;
};
struct SmallChunks : Parts {
  using Storage = AnySize<>;
  using Threads = Central<>;
  using Pages = SystemPages<64_KiB>;
  using Recycling = RecycleAtOnce<64_KiB>;
};
struct Huge : Parts {
  using Storage = AnySize<>;
  using Pages = HugePages<2_MiB>;
};
struct InBuffer : Parts {
  using Sizes = Classes<SizeClass<16, 4_KiB>, SizeClass<64, 4_KiB>, SizeClass<512, 8_KiB>>;
  using Storage = AnySize<>;
  using Pages = UserBuffer;
};

}  // namespace allod::test
