// A heap of one thread in a hot loop: three sizes, known when the program is compiled. allocate<>()
// and deallocate<>() are seven instructions each, without a lock or an atomic one.
#include <allod.hpp>
#include <cstdio>
#include <new>

namespace {

struct Order {
  Order* next;
  unsigned price;
  unsigned amount;
};
struct Fill {
  Order* order;
  char text[40];
};

struct BookParts : allod::Parts {
  using Sizes = allod::FixedClasses<sizeof(Order), sizeof(Fill), 128>;
};
using BookHeap = allod::Tailored<BookParts>;

template <class T>
T* make(BookHeap& heap) {
  return new (heap.allocate<sizeof(T)>()) T{};
}

}  // namespace

int main() {
  BookHeap heap{"book"};
  Order* book = nullptr;
  unsigned long filled = 0;
  for (unsigned i = 0; i < 10'000'000; ++i) {
    Order* const order = make<Order>(heap);
    *order = {book, i % 100, 1 + i % 7};
    book = order;
    if (i % 8 != 7) continue;
    for (Fill* fill = nullptr; book != nullptr;) {
      fill = make<Fill>(heap);
      fill->order = book;
      filled += fill->order->amount;
      book = book->next;
      heap.deallocate<sizeof(Order)>(fill->order);
      heap.deallocate<sizeof(Fill)>(fill);
    }
  }
  const auto figures = heap.figures();
  std::printf("filled %lu, %zu blocks in use, %zu KiB mapped\n", filled, figures.live_blocks,
              figures.mapped / 1024);
  std::printf("%llu times a magazine was filled\n",
              static_cast<unsigned long long>(figures.refills));
}
