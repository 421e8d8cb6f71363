// Memory of the live server: a heap of its own, which the program's figures exclude.
#pragma once

#include <stddef.h>
#include <string.h>

#include <cstdint>
#include <new>
#include <utility>

namespace allod::live {

// Creates the heap and lets libevent use it. False without Allod, or if memory is exhausted.
[[nodiscard]] bool open_memory() noexcept;
// Calls work(context), on the only thread that uses libevent. False if libevent met a fatal error,
// at which it would end the process; its memory is then abandoned.
[[nodiscard]] bool with_events(void (*work)(void*) noexcept, void* context) noexcept;
// In the child of a fork: forgets the parent server's memory.
void drop_memory() noexcept;

// Null if memory is exhausted.
[[nodiscard]] void* allocate(size_t size) noexcept;
[[nodiscard]] void* resize(void* block, size_t size) noexcept;
void release(void* block) noexcept;
[[nodiscard]] size_t held_bytes() noexcept;

// A variable that is never destroyed: threads of the server, and the allocator, may still use it
// when the process ends.
template <class T>
union Lasting {
  constexpr Lasting() noexcept : value{} {}
  ~Lasting() {}
  T value;
};

// A growing array of trivially copyable elements. Operations return false, and change nothing, if
// memory is exhausted.
template <class T>
class Table {
 public:
  Table() noexcept = default;
  ~Table() { release(rows_); }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  Table(Table&& other) noexcept { swap(other); }
  Table& operator=(Table&& other) noexcept {
    swap(other);
    return *this;
  }
  void swap(Table& other) noexcept {
    std::swap(rows_, other.rows_);
    std::swap(size_, other.size_);
    std::swap(room_, other.room_);
  }

  [[nodiscard]] size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] T* begin() noexcept { return rows_; }
  [[nodiscard]] T* end() noexcept { return rows_ + size_; }
  [[nodiscard]] const T* begin() const noexcept { return rows_; }
  [[nodiscard]] const T* end() const noexcept { return rows_ + size_; }
  [[nodiscard]] T& operator[](size_t index) noexcept { return rows_[index]; }
  [[nodiscard]] const T& operator[](size_t index) const noexcept { return rows_[index]; }
  [[nodiscard]] T& back() noexcept { return rows_[size_ - 1]; }

  [[nodiscard]] bool reserve(size_t room) noexcept {
    if (room <= room_) return true;
    // Of tables of pointers, too. NOLINTNEXTLINE(bugprone-sizeof-expression)
    void* const moved = resize(rows_, room * sizeof(T));
    if (moved == nullptr) return false;
    rows_ = static_cast<T*>(moved);
    room_ = room;
    return true;
  }
  [[nodiscard]] bool has_room() const noexcept { return size_ < room_; }
  // Room for so many rows more.
  [[nodiscard]] bool reserve_for(size_t more) noexcept {
    return size_ + more <= room_ || reserve(room_ == 0 ? 16 : room_ * 2);
  }
  [[nodiscard]] bool push(const T& row) noexcept {
    if (!reserve_for(1)) return false;
    rows_[size_++] = row;
    return true;
  }
  // New rows are zero.
  [[nodiscard]] bool set_size(size_t size) noexcept {
    if (!reserve(size)) return false;
    if (size > size_) memset(static_cast<void*>(rows_ + size_), 0, (size - size_) * sizeof(T));
    size_ = size;
    return true;
  }
  void clear() noexcept { size_ = 0; }
  void remove(size_t index) noexcept {
    --size_;
    // NOLINTNEXTLINE(bugprone-sizeof-expression)
    memmove(static_cast<void*>(rows_ + index), rows_ + index + 1, (size_ - index) * sizeof(T));
  }

 private:
  T* rows_ = nullptr;
  size_t size_ = 0;
  size_t room_ = 0;
};

}  // namespace allod::live
