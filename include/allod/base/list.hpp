// Intrusive doubly linked list. The links live in the element; a list owns nothing.
#pragma once

#include "allod/base/cpu.hpp"

namespace allod {

template <class T>
struct ListLinks {
  T* previous = nullptr;
  T* next = nullptr;
};

// `kLinks` is the member of T with the links, so an element can be on several lists. Not
// thread-safe.
template <class T, ListLinks<T> T::* kLinks>
class List {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] T* first() const noexcept { return first_; }
  [[nodiscard]] T* last() const noexcept { return last_; }
  [[nodiscard]] static T* next(const T* element) noexcept { return (element->*kLinks).next; }

  void push_front(T* element) noexcept {
    (element->*kLinks) = {nullptr, first_};
    (first_ ? (first_->*kLinks).previous : last_) = element;
    first_ = element;
  }
  void push_back(T* element) noexcept {
    (element->*kLinks) = {last_, nullptr};
    (last_ ? (last_->*kLinks).next : first_) = element;
    last_ = element;
  }
  ALLOD_HOT void remove(T* element) noexcept {
    ListLinks<T>& links = element->*kLinks;
    (links.previous ? (links.previous->*kLinks).next : first_) = links.next;
    (links.next ? (links.next->*kLinks).previous : last_) = links.previous;
    links = {};
  }
  T* pop_front() noexcept {
    T* element = first_;
    if (element != nullptr) remove(element);
    return element;
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
};

}  // namespace allod
