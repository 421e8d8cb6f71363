// A library that replaces malloc, with one's own size classes: preload it into any program.
#include <allod.hpp>

struct OwnParts : allod::Parts {
  using Sizes = allod::GeometricClasses<16, 2048, 4>;
  using Storage = allod::AnySize<>;
  using Threads = allod::ThreadCaching<>;
  using Recycling = allod::RecycleAfter<500>;
};
ALLOD_REPLACE_MALLOC(allod::Tailored<OwnParts>);
