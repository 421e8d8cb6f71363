// Needs the library that copies early.
int early_answer(void);

int main(void) { return early_answer() == 42 ? 0 : 1; }
