// A library that copies while the loader still relocates: its resolver runs then.
#include <string.h>

static char shifted[64];
static int works;

static int answer(void) { return 42; }
static int (*resolve(void))(void) {
  char text[32];
  memset(text, 0, sizeof text);
  strcpy(text, "early");
  strcat(text, " bird");
  memcpy(shifted, text, sizeof text);
  memmove(shifted + 1, shifted, 11);
  strncpy(text, shifted, 5);
  works = strcmp(shifted, "eearly bird") == 0 && strcmp(text, "eearl bird") == 0;
  return answer;
}
static int early(void) __attribute__((ifunc("resolve")));

int early_answer(void);
int early_answer(void) { return works ? early() : 0; }
