#include "encoded.hpp"

#include <zlib.h>

namespace allod::live {

bool compress(Table<char>& from, evbuffer* to) noexcept {
  z_stream stream{};
  stream.zalloc = [](void*, uInt items, uInt size) { return allocate(std::size_t{items} * size); };
  stream.zfree = [](void*, void* block) { release(block); };
  constexpr int kGzip = 16;
  if (deflateInit2(&stream, 1, Z_DEFLATED, MAX_WBITS + kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    return false;
  }
  stream.next_in = reinterpret_cast<Bytef*>(from.begin());
  stream.avail_in = static_cast<uInt>(from.size());
  int result = Z_OK;
  bool failed = false;
  while (result == Z_OK && !failed) {
    unsigned char out[16384];
    stream.next_out = out;
    stream.avail_out = sizeof out;
    result = deflate(&stream, Z_FINISH);
    failed = evbuffer_add(to, out, sizeof out - stream.avail_out) != 0;
  }
  deflateEnd(&stream);
  return result == Z_STREAM_END && !failed;
}

}  // namespace allod::live
