// A small HTTP server with a heap for each request: whatever a request allocates is gone with its
// heap, at once, and no request takes more than its limit. It asks itself two questions, and ends.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>
#include <allod/api/heap.hpp>
#include <allod/api/memory_resource.hpp>
#include <cstdio>
#include <map>
#include <string>
#include <thread>

namespace {

using String = std::pmr::string;

String read_head(int connection, std::pmr::memory_resource* memory) {
  String head{memory};
  char piece[512];
  while (head.find("\r\n\r\n") == String::npos) {
    const ssize_t count = read(connection, piece, sizeof piece);
    if (count <= 0) break;
    head.append(piece, static_cast<std::size_t>(count));
  }
  return head;
}

// Counts the letters of the path, with more memory than it needs.
String answer(const String& head, std::pmr::memory_resource* memory) {
  const std::size_t start = head.find(' ') + 1;
  const String path{head.substr(start, head.find(' ', start) - start), memory};
  if (path == "/large") return String(8 << 20, '.', memory);
  std::pmr::map<char, int> letters{memory};
  for (const char letter : path) ++letters[letter];
  String body{memory};
  for (const auto& [letter, count] : letters) (body += letter) += std::to_string(count);
  return body;
}

void serve(int connection) {
  // Nothing in here is freed one by one, and nobody else's memory is used.
  allod::Heap heap{"request", 1 << 20};
  allod::MemoryResource memory{heap};
  String reply{&memory};
  try {
    reply = answer(read_head(connection, &memory), &memory);
    reply.insert(0, "HTTP/1.0 200 OK\r\n\r\n");
  } catch (const std::bad_alloc&) {
    reply = "HTTP/1.0 413 Content Too Large\r\n\r\n";
  }
  if (write(connection, reply.data(), reply.size()) < 0) std::perror("write");
  close(connection);
}

void ask(const sockaddr_in& server, const char* path) {
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(connection, reinterpret_cast<const sockaddr*>(&server), sizeof server) != 0) return;
  const std::string request = std::string{"GET "} + path + " HTTP/1.0\r\n\r\n";
  if (write(connection, request.data(), request.size()) < 0) return;
  std::string reply;
  char piece[512];
  for (ssize_t count; (count = read(connection, piece, sizeof piece)) > 0;) {
    reply.append(piece, static_cast<std::size_t>(count));
  }
  close(connection);
  const std::size_t end = reply.find("\r\n\r\n");
  std::printf("%s: %s [%s]\n", path, reply.substr(9, reply.find('\r') - 9).c_str(),
              reply.substr(end + 4).c_str());
}

}  // namespace

int main() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener, 8) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    std::perror("no server");
    return 1;
  }
  std::thread server{[&] {
    for (int request = 0; request < 2; ++request) serve(accept(listener, nullptr, nullptr));
  }};
  ask(address, "/banana");
  ask(address, "/large");
  server.join();
}
