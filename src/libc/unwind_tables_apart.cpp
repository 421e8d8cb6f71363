// Keeps the unwind tables out of the resident set. They follow the constants in the file, and the
// kernel maps a file in windows of 64 KiB, so reading a constant would make them resident too. An
// aligned byte between the two begins the next window. For shared libraries only: the layout of a
// program is its linker's choice.
__asm__(
    ".pushsection allod_window, \"a\", %progbits\n\t"
    ".balign 65536\n\t"
    ".byte 0\n\t"
    ".popsection");
