// Functions of libc that allocate for the caller or for themselves.
#include <argz.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fts.h>
#include <glob.h>
#include <iconv.h>
#include <ifaddrs.h>
#include <langinfo.h>
#include <locale.h>
#include <malloc.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <obstack.h>
#include <pthread.h>
#include <regex.h>
#include <search.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>
#include <wordexp.h>

#include "cases.h"

CASE(strdup_family) {
  for (size_t length = 0; length < 5000; length += 37) {
    char* text = obtain(length + 1);
    memset(text, 'x', length);
    text[length] = '\0';
    char* copy = strdup(text);
    char* half = strndup(text, length / 2);
    CHECK(copy != NULL && strcmp(copy, text) == 0, "strdup of %zu characters", length);
    CHECK(half != NULL && strlen(half) == length / 2, "strndup of %zu characters", length);
    free(text);
    free(copy);
    free(half);
  }
  wchar_t* wide = wcsdup(L"wide text");
  CHECK(wide != NULL && wcscmp(wide, L"wide text") == 0, "wcsdup");
  free(wide);
}

CASE(formatted_strings) {
  for (int width = 1; width < 20000; width += 731) {
    char* text = NULL;
    CHECK(asprintf(&text, "%*d|end", width, 7) == width + 4, "asprintf of width %d", width);
    CHECK(strcmp(text + width - 1, "7|end") == 0, "asprintf of width %d", width);
    free(text);
  }
  // Digits beyond any buffer on the stack.
  char* digits = NULL;
  CHECK(asprintf(&digits, "%.20000f", 1.0 / 3.0) == 20002, "a number of 20000 digits");
  CHECK(strncmp(digits, "0.3333333", 9) == 0, "a number of 20000 digits");
  double back = strtod(digits, NULL);
  CHECK(back == 1.0 / 3.0, "strtod of 20000 digits");
  free(digits);
  char* word = NULL;
  int number = 0;
  CHECK(sscanf("first 42", "%ms %d", &word, &number) == 2 && strcmp(word, "first") == 0,
        "sscanf with %%ms");
  free(word);
}

CASE(lines_of_a_file) {
  FILE* file = tmpfile();
  CHECK(file != NULL, "tmpfile");
  for (int i = 0; i < 3000; ++i) {
    fprintf(file, "%0*d\n", i + 1, i);
  }
  rewind(file);
  char* line = NULL;
  size_t capacity = 0;
  for (int i = 0; i < 3000; ++i) {
    ssize_t length = getline(&line, &capacity, file);
    CHECK(length >= i + 2 && atoi(line) == i, "line %d has %zd characters", i, length);
    CHECK(malloc_usable_size(line) >= capacity, "the buffer of getline is too small");
  }
  CHECK(getline(&line, &capacity, file) == -1, "more lines than were written");
  free(line);
  line = NULL;
  capacity = 0;
  rewind(file);
  CHECK(getdelim(&line, &capacity, EOF, file) > 4000000, "getdelim of the whole file");
  free(line);
  fclose(file);
}

CASE(streams_in_memory) {
  char* text = NULL;
  size_t length = 0;
  FILE* stream = open_memstream(&text, &length);
  CHECK(stream != NULL, "open_memstream");
  for (int i = 0; i < 100000; ++i) {
    fprintf(stream, "%d,", i);
  }
  fclose(stream);
  CHECK(length == 588890 && strlen(text) == length, "%zu characters", length);
  stream = fmemopen(text, length, "r");
  CHECK(stream != NULL, "fmemopen");
  for (int i = 0; i < 100000; ++i) {
    int number = -1;
    CHECK(fscanf(stream, "%d,", &number) == 1 && number == i, "number %d is %d", i, number);
  }
  fclose(stream);
  free(text);
}

CASE(many_open_files) {
  FILE* files[100];
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < 100; ++i) {
      files[i] = fopen("/dev/null", "r+");
      CHECK(files[i] != NULL, "fopen");
      // The buffer is allocated on first use, or given by the program.
      if (i % 2 == 0) {
        fputc('x', files[i]);
      } else {
        CHECK(setvbuf(files[i], NULL, _IOFBF, 10000) == 0, "setvbuf");
      }
    }
    for (size_t i = 0; i < 100; ++i) {
      fclose(files[i]);
    }
  }
}

CASE(numeric_addresses) {
  struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  for (int i = 1; i < 200; ++i) {
    char host[32];
    snprintf(host, sizeof host, "10.0.0.%d", i);
    struct addrinfo* result = NULL;
    CHECK(getaddrinfo(host, "80", &hints, &result) == 0, "getaddrinfo of %s", host);
    struct sockaddr_in* address = (struct sockaddr_in*)(void*)result->ai_addr;
    CHECK(ntohl(address->sin_addr.s_addr) == 0x0a000000u + (unsigned)i, "%s", host);
    freeaddrinfo(result);
  }
  struct addrinfo* six = NULL;
  CHECK(getaddrinfo("::1", "443", &hints, &six) == 0, "getaddrinfo of ::1");
  freeaddrinfo(six);
}

CASE(network_interfaces) {
  struct ifaddrs* addresses = NULL;
  if (getifaddrs(&addresses) == 0) {
    freeifaddrs(addresses);
  }
  struct if_nameindex* names = if_nameindex();
  if (names != NULL) {
    if_freenameindex(names);
  }
  free(obtain(100));
}

CASE(regular_expressions) {
  for (int i = 0; i < 100; ++i) {
    regex_t expression;
    char pattern[100];
    snprintf(pattern, sizeof pattern, "^(a|b|[c-%c])*x{1,%d}(end)?$", 'd' + i % 20, i % 30 + 1);
    CHECK(regcomp(&expression, pattern, REG_EXTENDED) == 0, "regcomp of %s", pattern);
    regmatch_t matches[4];
    CHECK(regexec(&expression, "abcabcaxend", 4, matches, 0) == 0, "%s", pattern);
    CHECK(matches[2].rm_so == 8 && matches[2].rm_eo == 11, "%s", pattern);
    CHECK(regexec(&expression, "abc!", 0, NULL, 0) == REG_NOMATCH, "%s", pattern);
    regfree(&expression);
  }
}

static int compare_numbers(const void* a, const void* b) {
  uint64_t left = *(const uint64_t*)a;
  uint64_t right = *(const uint64_t*)b;
  return (left > right) - (left < right);
}

CASE(sorting) {
  for (size_t count = 1; count <= 1000000; count *= 10) {
    uint64_t* numbers = obtain(count * sizeof *numbers);
    uint64_t sum = 0;
    for (size_t i = 0; i < count; ++i) {
      numbers[i] = i * 0x9e3779b97f4a7c15u;
      sum += numbers[i];
    }
    qsort(numbers, count, sizeof *numbers, compare_numbers);
    for (size_t i = 0; i < count; ++i) {
      CHECK(i == 0 || numbers[i - 1] <= numbers[i], "element %zu of %zu", i, count);
      sum -= numbers[i];
    }
    CHECK(sum == 0, "qsort of %zu lost an element", count);
    free(numbers);
  }
}

CASE(directories) {
  int directly = 0;
  DIR* directory = opendir("/usr/bin");
  CHECK(directory != NULL, "opendir");
  while (readdir(directory) != NULL) {
    ++directly;
  }
  closedir(directory);
  struct dirent** entries = NULL;
  int scanned = scandir("/usr/bin", &entries, NULL, alphasort);
  CHECK(scanned == directly, "scandir found %d of %d entries", scanned, directly);
  for (int i = 0; i < scanned; ++i) {
    CHECK(i == 0 || strcoll(entries[i - 1]->d_name, entries[i]->d_name) <= 0, "entry %d", i);
  }
  for (int i = 0; i < scanned; ++i) {
    free(entries[i]);
  }
  free(entries);
  glob_t found;
  CHECK(glob("/usr/bin/*", 0, NULL, &found) == 0, "glob");
  CHECK(found.gl_pathc > 10 && (int)found.gl_pathc <= directly, "glob found %zu",
        (size_t)found.gl_pathc);
  globfree(&found);
  char start[] = "/etc";
  char* starts[] = {start, NULL};
  FTS* tree = fts_open(starts, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
  CHECK(tree != NULL, "fts_open");
  for (int i = 0; i < 2000 && fts_read(tree) != NULL; ++i) {
  }
  CHECK(fts_close(tree) == 0, "fts_close");
}

CASE(paths) {
  char* resolved = realpath("/usr/../usr/./bin/..", NULL);
  CHECK(resolved != NULL && strcmp(resolved, "/usr") == 0, "realpath");
  free(resolved);
  CHECK(chdir("/usr") == 0, "chdir");
  char* current = getcwd(NULL, 0);
  CHECK(current != NULL && strcmp(current, "/usr") == 0, "getcwd");
  free(current);
}

CASE(locales) {
  for (int i = 0; i < 100; ++i) {
    CHECK(setlocale(LC_ALL, i % 2 == 0 ? "C.UTF-8" : "C") != NULL, "setlocale");
    locale_t fresh = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    CHECK(fresh != (locale_t)0, "newlocale");
    locale_t copy = duplocale(fresh);
    CHECK(copy != (locale_t)0, "duplocale");
    CHECK(strcmp(nl_langinfo_l(CODESET, copy), "UTF-8") == 0, "nl_langinfo_l");
    freelocale(fresh);
    freelocale(copy);
  }
  setlocale(LC_ALL, "C.UTF-8");
  wchar_t wide[100];
  CHECK(mbstowcs(wide, "gr\xc3\xbc\xc3\x9f", 100) == 4, "mbstowcs");
}

CASE(character_sets) {
  for (int i = 0; i < 50; ++i) {
    iconv_t converter = iconv_open("UTF-16LE", "UTF-8");
    CHECK(converter != (iconv_t)-1, "iconv_open");
    char input[] = "gr\xc3\xbc\xc3\x9f";
    char output[100];
    char* from = input;
    char* to = output;
    size_t from_left = sizeof input - 1;
    size_t to_left = sizeof output;
    CHECK(iconv(converter, &from, &from_left, &to, &to_left) == 0, "iconv");
    CHECK(sizeof output - to_left == 8, "iconv wrote %zu bytes", sizeof output - to_left);
    CHECK(iconv_close(converter) == 0, "iconv_close");
  }
}

CASE(wide_streams) {
  CHECK(setlocale(LC_ALL, "C.UTF-8") != NULL, "setlocale");
  FILE* file = tmpfile();
  CHECK(file != NULL && fwide(file, 1) > 0, "fwide");
  for (int i = 0; i < 1000; ++i) {
    CHECK(fwprintf(file, L"%ls %d\n", L"\u00fc", i) > 0, "fwprintf");
  }
  rewind(file);
  for (int i = 0; i < 1000; ++i) {
    wchar_t word[10];
    int number = -1;
    CHECK(fwscanf(file, L"%9ls %d", word, &number) == 2 && number == i, "line %d", i);
  }
  fclose(file);
}

CASE(dynamic_libraries) {
  for (int i = 0; i < 200; ++i) {
    void* library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL, "dlopen: %s", dlerror());
    double (*cosine)(double) = (double (*)(double))dlsym(library, "cos");
    CHECK(cosine != NULL && cosine(0) == 1, "dlsym: %s", dlerror());
    CHECK(dlsym(library, "there_is_no_such_name") == NULL && dlerror() != NULL,
          "an error has no message");
    CHECK(dlclose(library) == 0, "dlclose: %s", dlerror());
    CHECK(dlopen("/there/is/no/such/library.so", RTLD_NOW) == NULL && dlerror() != NULL,
          "an error has no message");
  }
}

CASE(environment) {
  for (int i = 0; i < 2000; ++i) {
    char name[32];
    char value[64];
    snprintf(name, sizeof name, "VARIABLE_%d", i % 500);
    snprintf(value, sizeof value, "value %d", i);
    CHECK(setenv(name, value, 1) == 0, "setenv");
    CHECK(strcmp(getenv(name), value) == 0, "%s", name);
  }
  for (int i = 0; i < 500; ++i) {
    char name[32];
    snprintf(name, sizeof name, "VARIABLE_%d", i);
    CHECK(unsetenv(name) == 0 && getenv(name) == NULL, "unsetenv");
  }
  CHECK(clearenv() == 0, "clearenv");
  char assignment[] = "GIVEN=1";
  CHECK(putenv(assignment) == 0 && strcmp(getenv("GIVEN"), "1") == 0, "putenv");
}

CASE(time_zones) {
  static const char* const zones[] = {"UTC0", "EST5EDT,M3.2.0,M11.1.0", "CET-1CEST"};
  for (int i = 0; i < 300; ++i) {
    CHECK(setenv("TZ", zones[i % 3], 1) == 0, "setenv");
    tzset();
    time_t moment = 1700000000;
    struct tm local;
    CHECK(localtime_r(&moment, &local) != NULL && mktime(&local) == moment, "%s", zones[i % 3]);
  }
}

static int compare_texts(const void* a, const void* b) { return strcmp(a, b); }
static void free_text(void* node) { free(node); }

CASE(search_trees_and_tables) {
  void* root = NULL;
  for (int i = 0; i < 20000; ++i) {
    char* text = NULL;
    CHECK(asprintf(&text, "%d", (i * 7919) % 10007) > 0, "asprintf");
    char** found = tsearch(text, &root, compare_texts);
    CHECK(found != NULL, "tsearch");
    if (*found != text) {
      free(text);
    }
  }
  for (int i = 0; i < 5000; ++i) {
    char text[16];
    snprintf(text, sizeof text, "%d", i);
    char** found = tfind(text, &root, compare_texts);
    CHECK(found != NULL, "tfind of %d", i);
    char* stored = *found;
    CHECK(tdelete(text, &root, compare_texts) != NULL, "tdelete of %d", i);
    free(stored);
  }
  tdestroy(root, free_text);
  struct hsearch_data table = {0};
  CHECK(hcreate_r(5000, &table) != 0, "hcreate_r");
  ENTRY* slot = NULL;
  CHECK(hsearch_r((ENTRY){.key = (char*)"key", .data = &table}, ENTER, &slot, &table) != 0,
        "hsearch_r");
  hdestroy_r(&table);
}

CASE(words_and_vectors) {
  wordexp_t words;
  CHECK(wordexp("one 'two three' ~root four*", &words, WRDE_NOCMD) == 0, "wordexp");
  CHECK(words.we_wordc == 4 && strcmp(words.we_wordv[1], "two three") == 0, "%zu words",
        (size_t)words.we_wordc);
  wordfree(&words);
  char* vector = NULL;
  size_t length = 0;
  for (int i = 0; i < 1000; ++i) {
    CHECK(argz_add(&vector, &length, "argument") == 0, "argz_add");
  }
  CHECK(argz_count(vector, length) == 1000, "argz_count");
  free(vector);
}

#define obstack_chunk_alloc malloc
#define obstack_chunk_free free

CASE(obstacks) {
  struct obstack stack;
  obstack_init(&stack);
  char* first = obstack_alloc(&stack, 100);
  fill(first, 100, 1);
  for (int i = 0; i < 10000; ++i) {
    char* object = obstack_alloc(&stack, i % 1000 + 1);
    memset(object, i & 0xff, (size_t)(i % 1000 + 1));
  }
  CHECK(holds(first, 100, 1), "an object of the obstack was overwritten");
  obstack_free(&stack, NULL);
}

CASE(processes_and_pipes) {
  FILE* pipe = popen("echo from a shell", "r");
  CHECK(pipe != NULL, "popen");
  char line[100];
  CHECK(fgets(line, sizeof line, pipe) != NULL && strcmp(line, "from a shell\n") == 0, "popen");
  CHECK(pclose(pipe) == 0, "pclose");
  CHECK(system("exit 7") == 7 * 256, "system");
  posix_spawn_file_actions_t actions;
  CHECK(posix_spawn_file_actions_init(&actions) == 0, "posix_spawn_file_actions_init");
  for (int i = 100; i < 150; ++i) {
    CHECK(posix_spawn_file_actions_addopen(&actions, i, "/dev/null", 0, 0) == 0, "addopen");
  }
  CHECK(posix_spawn_file_actions_destroy(&actions) == 0, "posix_spawn_file_actions_destroy");
}

static void* run_nothing(void* argument) { return argument; }

// Stacks, control blocks and thread-local storage come from the loader's own calls.
CASE(threads) {
  for (int round = 0; round < 20; ++round) {
    pthread_t threads[50];
    for (size_t i = 0; i < 50; ++i) threads[i] = start_thread(run_nothing, (void*)(i + 1));
    for (size_t i = 0; i < 50; ++i) {
      void* result = NULL;
      CHECK(pthread_join(threads[i], &result) == 0 && result == (void*)(i + 1), "thread %zu", i);
    }
  }
}
