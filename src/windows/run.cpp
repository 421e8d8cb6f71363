// allod-run.exe PROGRAM ARGUMENTS: starts a program on Allod. Loads allod-replace.dll, which lies
// beside it, into the program before that begins; passes its exit status on.
#include <windows.h>

namespace {

void say(const wchar_t* what) {
  HANDLE const file = GetStdHandle(STD_ERROR_HANDLE);
  char line[1024] = "allod-run: ";
  int length = lstrlenA(line);
  length += WideCharToMultiByte(CP_UTF8, 0, what, -1, line + length,
                                static_cast<int>(sizeof line) - length - 2, nullptr, nullptr);
  if (length > 0 && line[length - 1] == 0) --length;
  line[length++] = '\n';
  DWORD done = 0;
  WriteFile(file, line, static_cast<DWORD>(length), &done, nullptr);
}

// The command line behind our own name, as it was written.
[[nodiscard]] wchar_t* behind_name(wchar_t* line) {
  bool is_quoted = false;
  for (; *line != 0 && (is_quoted || (*line != L' ' && *line != L'\t')); ++line) {
    if (*line == L'"') is_quoted = !is_quoted;
  }
  while (*line == L' ' || *line == L'\t') ++line;
  return line;
}

[[nodiscard]] bool find_library(wchar_t (&path)[MAX_PATH]) {
  constexpr wchar_t kName[] = L"allod-replace.dll";
  const DWORD length = GetModuleFileNameW(nullptr, path, MAX_PATH);
  if (length == 0 || length == MAX_PATH) return false;
  wchar_t* end = path + length;
  while (end > path && end[-1] != L'\\') --end;
  if (end + sizeof kName / sizeof kName[0] > path + MAX_PATH) return false;
  lstrcpyW(end, kName);
  return GetFileAttributesW(path) != INVALID_FILE_ATTRIBUTES;
}

// Whether the library is loaded in the suspended process. kernel32 lies at the same address in all
// processes.
[[nodiscard]] bool load_into(HANDLE process, const wchar_t* path) {
  const SIZE_T bytes = (static_cast<SIZE_T>(lstrlenW(path)) + 1) * sizeof(wchar_t);
  void* const room =
      VirtualAllocEx(process, nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  if (room == nullptr || WriteProcessMemory(process, room, path, bytes, nullptr) == 0) return false;
  void* const load =
      reinterpret_cast<void*>(GetProcAddress(GetModuleHandleW(L"kernel32.dll"), "LoadLibraryW"));
  HANDLE const thread = CreateRemoteThread(
      process, nullptr, 0, reinterpret_cast<LPTHREAD_START_ROUTINE>(load), room, 0, nullptr);
  if (thread == nullptr) return false;
  WaitForSingleObject(thread, INFINITE);
  DWORD module = 0;
  GetExitCodeThread(thread, &module);
  CloseHandle(thread);
  VirtualFreeEx(process, room, 0, MEM_RELEASE);
  return module != 0;
}

}  // namespace

int main() {
  constexpr int kFailed = 125;
  constexpr int kNotFound = 127;
  wchar_t* const command = behind_name(GetCommandLineW());
  if (*command == 0) {
    say(L"usage: allod-run PROGRAM [ARGUMENTS]");
    return kFailed;
  }
  wchar_t library[MAX_PATH];
  if (!find_library(library)) {
    say(L"allod-replace.dll is not beside allod-run.exe");
    return kFailed;
  }
  STARTUPINFOW start{};
  start.cb = sizeof start;
  PROCESS_INFORMATION child{};
  if (CreateProcessW(nullptr, command, nullptr, nullptr, TRUE, CREATE_SUSPENDED, nullptr, nullptr,
                     &start, &child) == 0) {
    say(L"no such program, or it cannot be started");
    return kNotFound;
  }
  BOOL has_32_bits = FALSE;
  if ((IsWow64Process(child.hProcess, &has_32_bits) != 0 && has_32_bits != 0) ||
      !load_into(child.hProcess, library)) {
    say(has_32_bits != 0 ? L"programs of 32 bits are not supported"
                         : L"allod-replace.dll cannot be loaded into the program");
    TerminateProcess(child.hProcess, kFailed);
    return kFailed;
  }
  // An interrupt from the keyboard goes to both, and is the program's to handle.
  SetConsoleCtrlHandler(nullptr, TRUE);
  ResumeThread(child.hThread);
  WaitForSingleObject(child.hProcess, INFINITE);
  DWORD status = 0;
  GetExitCodeProcess(child.hProcess, &status);
  return static_cast<int>(status);
}
