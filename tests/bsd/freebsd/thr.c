/* The thread library of FreeBSD has names of versions, and libc.c all functions. */
