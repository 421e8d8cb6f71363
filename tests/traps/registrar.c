// Preloaded: has the function by which a process that uses librseq registers its threads.
int rseq_register_current_thread(void);
int rseq_register_current_thread(void) { return -1; }
