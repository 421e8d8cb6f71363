// Unwind tables lie in the file behind the constants. The kernel maps a file in windows of 64 KiB,
// so that whoever reads a constant would have the tables resident, which only exceptions and call
// stacks need. A byte between them begins the next window. In a shared library alone: a program
// that has Allod in it is laid out as its linker likes.
__asm__(
    ".pushsection allod_window, \"a\", %progbits\n\t"
    ".balign 65536\n\t"
    ".byte 0\n\t"
    ".popsection");
